"""Reads the corpus that `--input_file` names, as documents of sentences.

An input is a comma-separated list of
  * files or globs, `gs://` too, each plain or gzip, in one of the formats below;
  * `tfds:<name>[/<config>][:<version>]`, the training split of a TFDS text set;
  * `docstrings:` or `docstrings:max_bytes=20000000`, the embedded corpus.

Formats: `lines` (one sentence per line, blank lines between documents: the original's),
`paragraphs` (ordinary text), `wikiextractor` (`<doc>` blocks), `jsonl`, `parquet`,
`table` (CSV, TSV) and `auto`, which looks at the first 64 KiB of each file: `PAR1` is
parquet; `<doc ` at the start is wikiextractor; a JSON object on the first line is
jsonl; a name that ends in .csv or .tsv is table. Other text is `lines` if half of its
characters are in lines with a line directly before or after them, and 60% of those with
one directly after end a sentence and contain no other sentence end; else it is
`paragraphs`. The choice is logged.

Sentences are split by `sentencex` (Wikimedia's segmenter for about 300 languages:
abbreviations by language, quotes and brackets kept whole, `。！？` without spaces; an
unknown language falls back to a related one, or else to English). It splits about 10 MB
of text per second on one core, so that tokenization remains the slower step.
"""

import copy
import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import sentencex
from absl import logging

from albert_tf.data.corpus import docstrings, formats
from albert_tf.data.corpus.source import (
    MAX_JSON_BYTES,
    MAX_LINE_BYTES,
    Source,
    read_lines,
    read_table,
    read_tfds,
)
from albert_tf.errors import DataError, require
from albert_tf.settings import setting
from albert_tf.storage import files, streams
from albert_tf.tables.columns import BadRows
from albert_tf.tables.settings import LayoutSettings, ReadingSettings
from albert_tf.tables.tfds_source import prepared_folder

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-zA-Z0-9-]+)?")
FORMATS = ("auto", "lines", "paragraphs", "wikiextractor", "jsonl", "parquet", "table")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSettings(LayoutSettings, ReadingSettings):
    """How the files of a corpus are written, and where the text is in them."""

    input_format: str = setting(
        "Format of the files; gzip is recognized. lines: one sentence per line, a "
        "blank line between documents. table: CSV or TSV.",
        "auto",
        choices=FORMATS,
    )
    text_field: str = setting(
        "Column with the text of a table, or its field in jsonl, Parquet and TFDS.",
        "text",
    )

    @property
    def options(self) -> dict:
        """Arguments of `Corpus` besides its inputs."""
        names = [field.name for field in dataclasses.fields(CorpusSettings)]
        values = {name: getattr(self, name) for name in names}
        return {"format": values.pop("input_format"), **values}


class RawDocument(NamedTuple):
    """A document as it was read, before it is split into sentences.

    (source, number) identifies it for any number of processes: random choices
    made for a document depend only on these two.
    """

    source: int  # index of the source, from 0
    number: int  # index of the document in its source
    texts: list[str]
    is_split: bool  # whether the texts are already sentences


class Corpus:
    """Documents of all inputs in a fixed order, read as a stream.

    Args:
        inputs: str. See the module's docstring.
        format: str. One of `FORMATS`, for all files.
        text_field: str. Name of the field with the text in jsonl, tables and TFDS.
        on_bad_input: str. "stop", or "skip" to count and leave out lines that are not
            UTF-8, contain NUL bytes or are not JSON.
        **more: Other fields of `CorpusSettings`.

    Attributes:
        sources: list of `Source`.
        counts: Counter. What was skipped or cut; complete once everything is read.
        sha256: dict. Source name -> hex digest of its bytes on disk, once read.

    Raises:
        DataError: If no file matches, one cannot be read, or a TFDS set is not
            prepared and may not be downloaded.
        UsageError: If an argument is invalid.
    """

    def __init__(
        self,
        inputs: str,
        format: str = "auto",
        text_field: str = "text",
        on_bad_input: str = "stop",
        **more,
    ):
        rule = f"input_format: expected one of {', '.join(FORMATS)}"
        require(format in FORMATS, rule, format)
        self.settings = CorpusSettings(
            input_format=format,
            text_field=text_field,
            on_bad_input=on_bad_input,
            **more,
        )
        self.counts: Counter = Counter()
        self.sha256: dict[str, str] = {}
        self._bad = BadRows(on_bad_input, self.counts)
        self.sources = self._find(inputs, format)
        if format == "auto":
            self._log_formats()

    def restarted(self) -> "Corpus":
        """Returns a corpus of the same sources with new counts and checksums."""
        fresh = copy.copy(self)
        fresh.counts, fresh.sha256 = Counter(), {}
        fresh._bad = BadRows(self._bad.action, fresh.counts)
        return fresh

    def documents(self, only: Iterable[int] | None = None) -> Iterator[RawDocument]:
        """Yields the documents of all sources, or of those numbered in `only`."""
        for k in range(len(self.sources)) if only is None else only:
            source = self.sources[k]
            is_split = source.format == "lines"
            texts = self._texts(source)
            grouped = formats.group_documents(texts, self.counts)
            for number, document in enumerate(grouped):
                yield RawDocument(k, number, document, is_split)

    def _find(self, inputs: str, format: str) -> list[Source]:
        names: dict[str, str] = {}
        for part in filter(None, map(str.strip, inputs.split(","))):
            scheme = part.partition(":")[0]
            if scheme in ("tfds", "docstrings"):
                names.setdefault(part, scheme)
                continue
            matches = [p for p in streams.glob(part) if not files.is_folder(p)]
            if not matches:
                hint = "no such file, and no file matches it as a pattern"
                if files.exists(part):
                    hint = f"is a folder; use a pattern such as '{part}/*.txt'"
                raise DataError(f"input_file: {part}: {hint}")
            for path in matches:
                self.counts["inputs_repeated"] += path in names
                names.setdefault(path, format)
        require(names, "input_file: must name an input", inputs)
        return [self._source(name, kind) for name, kind in names.items()]

    def _source(self, name: str, kind: str) -> Source:
        if kind == "docstrings":
            return Source(name, kind, _docstring_limit(name) or 0)
        if kind == "tfds":
            prepared_folder(name, self.settings.tfds_data_dir, self.settings.download)
            return Source(name, kind, 0)
        # A pipe is empty after its format was detected, or a run was killed.
        rule = f"{name}: must be a regular file, write it to one"
        require(streams.is_regular(name), rule, error=DataError)
        size, modified = streams.size(name), streams.modified(name)
        kind = formats.detect_format(name) if kind == "auto" else kind
        return Source(name, kind, size, modified)

    def _log_formats(self) -> None:
        """Logs which formats were detected, so that a wrong one is seen at once."""
        found: dict[str, list[str]] = {}
        for source in self.sources:
            if source.format in FORMATS:
                found.setdefault(source.format, []).append(source.name)
        for kind, names in found.items():
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            logging.info("%s%s: read as --input_format=%s", names[0], more, kind)

    def _texts(self, source: Source) -> Iterator[str | None]:
        name, kind = source.name, source.format
        if kind == "docstrings":
            limit = _docstring_limit(name)
            read = docstrings.read_docstrings(docstrings.source_files(), limit)
            return (text for document in read for text in (*document, None))
        if kind in ("tfds", "parquet", "table"):
            if kind == "tfds":
                rows = read_tfds(source, self.settings, self._bad)
            else:
                update = self._hasher(source)
                rows = read_table(source, self.settings, self._bad, update)
            return (
                text
                for row in rows
                for text in formats.text_paragraphs(row, self.counts)
            )
        is_json = kind == "jsonl"
        lines = read_lines(
            name,
            self._bad,
            MAX_JSON_BYTES if is_json else MAX_LINE_BYTES,
            cut=not is_json,
            on_bytes=self._hasher(source),
        )
        if is_json:
            return formats.read_json_lines(
                lines, self._bad, name, self.settings.text_field
            )
        if kind == "wikiextractor":
            return formats.read_wikiextractor(lines, self.counts)
        if kind == "lines":
            return formats.read_sentence_lines(lines)
        return formats.read_paragraphs(lines)

    def _hasher(self, source: Source):
        """Returns a callback for a file's bytes, called with none at its end."""
        digest = hashlib.sha256()
        name, count = source.name, 0

        def update(data: bytes) -> None:
            nonlocal count
            digest.update(data)
            count += len(data)
            if data:
                return
            self.sha256[name] = digest.hexdigest()
            if count != source.size:
                raise DataError(
                    f"{name}: changed while it was read: had {source.size} bytes at "
                    f"the start, {count} were read"
                )
            if source.modified and streams.modified(name) != source.modified:
                raise DataError(f"{name}: changed while it was read")

        return update


def open_corpus(
    inputs: str,
    format: str = "auto",
    language: str = "en",
    **options,
) -> Iterator[list[str]]:
    """Yields the documents of a corpus, each a list of sentences; see `Corpus`.

    Raises:
        DataError: If an input is missing or cannot be read, or all are empty.
    """
    language = check_language(language)
    corpus = Corpus(inputs, format, **options)
    empty = True
    for document in corpus.documents():
        if sentences := document_sentences(document, language):
            empty = False
            yield sentences
    if empty:
        raise DataError(f"input_file: {inputs}: contains no text")


def document_sentences(document: RawDocument, language: str) -> list[str]:
    """Returns the sentences of a document."""
    if document.is_split:
        return document.texts
    return [
        sentence
        for text in document.texts
        for sentence in split_sentences(text, language)
    ]


def check_language(language: str) -> str:
    """Returns `language` if it has the form of a language code.

    Raises:
        UsageError: If it has not.
    """
    rule = "language: expected a code such as 'en' or 'zh'"
    require(_LANGUAGE.fullmatch(language), rule, language)
    return language


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Splits a paragraph into sentences.

    White space is collapsed to single spaces, also across lines. Only white space is
    lost: the joined sentences contain every other character in order.

    Args:
        text: str. Running text.
        language: str. ISO 639 code.

    Returns:
        The sentences, none of them empty.
    """
    text = " ".join(text.split())
    if not text:
        return []
    sentences = (part.strip() for part in sentencex.segment(language, text))
    return [sentence for sentence in sentences if sentence]


def _docstring_limit(name: str) -> int | None:
    option = name.partition(":")[2]
    if not option:
        return None
    key, _, value = option.partition("=")
    rule = "input_file: expected 'docstrings:' or 'docstrings:max_bytes=<number>'"
    require(key == "max_bytes" and value.isdigit(), rule, name)
    return int(value)
