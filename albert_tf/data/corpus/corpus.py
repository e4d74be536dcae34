"""Reads the corpus that `--input_file` names, as documents of sentences.

An input is a comma-separated list of
  * files or globs, `gs://` too, each plain or gzip, in one of the formats below;
  * `tfds:<name>[/<config>][:<version>]`, the training split of a TFDS text set;
  * `docstrings:` or `docstrings:max_bytes=20000000`, the embedded corpus.
Sources with names and weights are described in `sources`.

Formats: `lines` (one sentence per line, blank lines between documents: the original's),
`paragraph_lines` (one paragraph per line, likewise), `paragraphs` (ordinary text, two
blank lines between documents), `wikiextractor` (`<doc>` blocks), `jsonl`, `parquet`,
`table` (CSV, TSV) and `auto`, which looks at the first 64 KiB of each file: `PAR1` is
parquet; `<doc ` at the start is wikiextractor; a JSON object on the first line is
jsonl; a name that ends in .csv or .tsv is table. Other text is `paragraphs` unless half
of its characters are in lines with a line directly before or after them. Then it is
`lines` if 60% of those with one directly after end a sentence and contain no other
sentence end, and `paragraph_lines` if lines that end a sentence have 60% of the
characters of those lines, or lines of more than 200 characters half of all. The choice
is logged.
"""

import copy
import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from absl import logging

from albert_tf.data.corpus import docstrings, formats, sources
from albert_tf.data.corpus.documents import (
    RawDocument,
    check_language,
    document_sentences,
)
from albert_tf.errors import DataError, count_of, require
from albert_tf.settings import check_fields, setting
from albert_tf.storage import files, streams
from albert_tf.tables.column_settings import LayoutSettings, ReadingSettings
from albert_tf.tables.columns import BadRows, file_format
from albert_tf.tables.text_stream import MAX_ROW_BYTES, TextStream
from albert_tf.tables.tfds_source import prepared_folder

_LINE_COUNTS = {
    "rows that are not JSON": "lines_not_json",
    "rows that are not objects": "lines_without_text",
    "rows_with_nul_bytes": "lines_with_nul_bytes",
    "rows_without_text": "lines_without_text",
}
FORMATS = ("auto", *formats.LAYOUTS)
# Longer documents, in characters, are rare unless documents are not separated.
_LONG = 1 << 20
# Formats with rows, and their kinds in `file_format`.
_ROW_FORMATS = {"jsonl": "json", "parquet": "parquet", "table": None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSettings(LayoutSettings, ReadingSettings):
    """The format of the files of a corpus, and the place of the text in them.

    Attributes:
        input_format: Format of the files; gzip is recognized. lines: one sentence per
            line, a blank line between documents. paragraph_lines: one paragraph per
            line, likewise. paragraphs: two blank lines between documents. table: CSV or
            TSV.
        text_field: Column with the text of a table, or its field in jsonl, Parquet and
            TFDS.
    """

    input_format: str = setting("auto", choices=FORMATS)
    text_field: str = setting("text", common=True)

    @property
    def options(self) -> dict:
        """Arguments of `Corpus` other than its inputs."""
        names = [field.name for field in dataclasses.fields(CorpusSettings)]
        return {name: getattr(self, name) for name in names}


class Source(NamedTuple):
    """One file or data set of a corpus."""

    name: str  # path, or `tfds:...`, `docstrings:...`
    format: str  # one of FORMATS except auto, or "tfds", "docstrings"
    size: int  # bytes, at most; 0 where unknown
    modified: int = 0  # nanoseconds since 1970; 0 where unknown
    part_of: str = ""  # the named source that it belongs to


class Corpus:
    """Documents of all inputs in a fixed order, read as a stream.

    Raises `DataError` if no file matches, one cannot be read, or a TFDS set is not
    prepared and may not be downloaded, and `UsageError` if an argument is invalid.

    Args:
        inputs: str. See the module's docstring.
        source_temperature: float or None. See `sources.read_sources`.
        **options: Other fields of `CorpusSettings`.

    Attributes:
        named: dict. `NamedSource` by name; empty if the inputs have no names.
        counts: Counter. Skipped and cut input by reason, once everything is read.
        sha256: dict. Source name -> hex digest of its bytes on disk, once read.
    """

    def __init__(
        self,
        inputs: str,
        input_format: str = "auto",
        *,
        source_temperature: float | None = None,
        **options,
    ):
        self.settings = CorpusSettings(input_format=input_format, **options)
        check_fields(self.settings)
        self.counts: Counter = Counter()
        self.sha256: dict[str, str] = {}
        self._warns = True
        self._bad = BadRows(self.settings.on_bad_input, self.counts)
        self.source_temperature = source_temperature
        self.named = sources.read_sources(inputs, source_temperature)
        self.sources = self._find(inputs)
        if input_format == "auto":
            self._log_formats()

    def restarted(self) -> "Corpus":
        """Returns a corpus of the same sources with new counts and checksums."""
        fresh = copy.copy(self)
        fresh.counts, fresh.sha256, fresh._warns = Counter(), {}, False
        fresh._bad = BadRows(self._bad.action, fresh.counts)
        return fresh

    def documents(self, only: Iterable[int] | None = None) -> Iterator[RawDocument]:
        """Yields the documents of all sources, or of the sources numbered in `only`."""
        for k in range(len(self.sources)) if only is None else only:
            source = self.sources[k]
            is_split = source.format == "lines"
            texts = self._texts(source)
            grouped = formats.group_documents(texts, self.counts)
            length = 0
            for number, (document, piece) in enumerate(grouped):
                length = sum(map(len, document)) + (length if piece else 0)
                if length > _LONG and source.format in formats.LAYOUTS:
                    self._warn_of_length(source)
                yield RawDocument(k, number, document, is_split, piece)

    def _find(self, inputs: str) -> list[Source]:
        names: dict[str, tuple[str, str]] = {}
        parts = [(part, "") for part in map(str.strip, inputs.split(",")) if part]
        if self.named:
            parts = [(i, name) for name, s in self.named.items() for i in s.inputs]
        for part, named in parts:
            expected = "--input_file: a TOML file of sources must be the only input"
            require(not part.endswith(".toml"), expected, part)
            kind = part.partition(":")[0]
            is_file, matches = kind not in ("tfds", "docstrings"), [part]
            if is_file:
                kind = self.settings.input_format
                matches = [p for p in streams.glob(part) if not files.is_folder(p)]
            if not matches:
                hint = "no such file, and no file matches it as a pattern"
                if files.exists(part):
                    hint = f"is a folder; use a pattern such as '{part}/*.txt'"
                elif not named and sources.NAMED.fullmatch(part):
                    hint += f"; a source with a name needs a weight, {sources.EXAMPLE}"
                raise DataError(f"input_file: {part}: {hint}")
            for path in matches:
                is_new = path not in names
                self.counts["inputs_repeated"] += is_file and not is_new
                _, other = names.setdefault(path, (kind, named))
                expected = f"input_file: {path}: must be in one source"
                require(other == named, expected, other, named, error=DataError)
        require(names, "input_file: must name an input", inputs)
        return [
            self._source(path, kind)._replace(part_of=named)
            for path, (kind, named) in names.items()
        ]

    def _source(self, name: str, kind: str) -> Source:
        if kind == "docstrings":
            return Source(name, kind, _docstring_limit(name) or 0)
        if kind == "tfds":
            prepared_folder(name, self.settings.tfds_data_dir, self.settings.download)
            return Source(name, kind, 0)
        status = files.status(name)
        if not status or not status.is_regular:
            # A pipe is empty after its format was detected, or a run was killed.
            raise DataError(f"{name}: must be a regular file, write it to one")
        kind = formats.detect_format(name) if kind == "auto" else kind
        return Source(name, kind, status.size, status.modified)

    def _warn_of_length(self, source: Source) -> None:
        """Warns once that a document may consist of several."""
        if self._warns:
            self._warns = False
            logging.warning(
                "%s: has a document of more than %s characters; read as "
                "--input_format=%s (%s), give another one if documents are set apart "
                "otherwise",
                source.name,
                f"{_LONG:,}",
                source.format,
                formats.LAYOUTS[source.format],
            )

    def _log_formats(self) -> None:
        """Logs the detected formats, so that a wrong one is noticed at once."""
        detected: dict[str, list[str]] = {}
        for source in self.sources:
            if source.format in FORMATS:
                detected.setdefault(source.format, []).append(source.name)
        for kind, names in detected.items():
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            layout = formats.LAYOUTS[kind]
            if kind in formats.PLAIN:
                number = formats.count_in_sample(names[0], kind)
                layout += f"; {count_of(number, 'document')} in the first 64 KiB"
            where = f"{names[0]}{more}"
            logging.info("%s: read as --input_format=%s (%s)", where, kind, layout)

    def _texts(self, source: Source) -> Iterator[str | None]:
        name, kind, bad, settings = *source[:2], self._bad, self.settings
        if kind == "docstrings":
            limit = _docstring_limit(name)
            read = docstrings.read_docstrings(docstrings.source_files(), limit)
            return (text for document in read for text in (*document, None))
        if kind == "tfds":
            field, folder = settings.text_field, settings.tfds_data_dir
            return formats.read_tfds(name, field, folder, bad)
        return self._file_texts(source)

    def _file_texts(self, source: Source) -> Iterator[str | None]:
        """Yields the texts of a file, and records the digest of its bytes."""
        name, kind, settings = *source[:2], self.settings
        is_lines = kind not in _ROW_FORMATS
        most = formats.MAX_LINE_BYTES if is_lines else MAX_ROW_BYTES
        bad = self._bad if is_lines else BadRows(self._bad.action)
        stream = TextStream(name, bad, most, rows=not is_lines, hashes=True)
        if kind == "wikiextractor":
            yield from formats.read_wikiextractor(stream.lines(), self.counts)
        elif kind in formats.PLAIN:
            yield from formats.PLAIN[kind](stream.lines())
        else:
            field, rows = settings.text_field, _ROW_FORMATS[kind] or file_format(name)
            yield from formats.read_rows(stream, rows, field, bad, settings.layout)
            # The names of the data card.
            names = _LINE_COUNTS if kind == "jsonl" else {}
            for reason, number in bad.counts.items():
                self.counts[names.get(reason, reason)] += number
        size, sha256 = stream.size, stream.sha256.hexdigest()
        if kind == "parquet":
            size, sha256 = files.digest_of(name).values()
        self._check_unchanged(source, size, sha256)

    def _check_unchanged(self, source: Source, size: int, sha256: str) -> None:
        """Records the digest of a file, and checks that the file has not changed."""
        name = source.name
        self.sha256[name] = sha256
        if size != source.size:
            raise DataError(
                f"{name}: changed while it was read: had {source.size} bytes at the "
                f"start, {size} were read"
            )
        if source.modified and streams.status(name).modified != source.modified:
            raise DataError(f"{name}: changed while it was read")


def open_corpus(
    inputs: str, input_format: str = "auto", language: str = "en", **options
) -> Iterator[list[str]]:
    """Yields the documents of a corpus, each a list of sentences; see `Corpus`.

    Raises `DataError` if an input is missing or cannot be read, or all are empty.
    """
    language = check_language(language)
    corpus = Corpus(inputs, input_format, **options)
    empty = True
    for document in corpus.documents():
        if sentences := document_sentences(document, language):
            empty = False
            yield sentences
    if empty:
        raise DataError(f"input_file: {inputs}: contains no text")


def _docstring_limit(name: str) -> int | None:
    option = name.partition(":")[2]
    if not option:
        return None
    key, _, value = option.partition("=")
    fits = key == "max_bytes" and value.isdigit()
    expected = "input_file: expected 'docstrings:' or 'docstrings:max_bytes=<number>'"
    require(fits, expected, name)
    return int(value)
