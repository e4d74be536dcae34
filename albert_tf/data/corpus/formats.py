"""Finds the format of a file, and reads the formats of a corpus.

A reader takes lines, or a column of a table, and yields texts (sentences for `lines`,
paragraphs still to be split for the other formats), and None at the end of each
document. Memory is bounded: see `MAX_LINE_BYTES` and `DOCUMENT_CHARS`.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator

from albert_tf.errors import DataError
from albert_tf.tables import tfds_source, typed_rows
from albert_tf.tables.cells import CellReader
from albert_tf.tables.columns import BadRows, did_you_mean, find_column
from albert_tf.tables.text_stream import TextStream, split_lines

# A longer line is cut at white space, so that memory stays bounded.
MAX_LINE_BYTES = 1 << 20
# A longer document is split.
DOCUMENT_CHARS = 1 << 18
# A paragraph without a blank line ends with the first full sentence after this.
_PARAGRAPH_CHARS = 8192
_DOC = re.compile(r"<doc\b[^>]*>")
_SENTENCE_END = tuple(".!?。！？\"'”’)")
_SAMPLE = 1 << 16
# A longer line, in characters, was not wrapped.
_UNWRAPPED = 200
# The way each format separates documents.
LAYOUTS = {
    "lines": "a sentence per line, an empty line between documents",
    "paragraph_lines": "a paragraph per line, an empty line between documents",
    "paragraphs": "two empty lines between documents",
    "wikiextractor": "a document per <doc>",
    **dict.fromkeys(("jsonl", "parquet", "table"), "a document per row"),
}
# Rows held in memory at once; each may be a whole book.
_ROWS = 64
_COMPRESSED = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_JSON_NAME = re.compile(r"\.(json|jsonl|ndjson)(\.gz)?$", re.IGNORECASE)
_JSON_START = re.compile(r'\[?\s*\{\s*"')
_TABLE_NAME = re.compile(r"\.(csv|tsv)(\.gz)?$", re.IGNORECASE)
# Stops that end a sentence whatever follows, and characters that begin one: a capital,
# or a letter of a script without letter case.
_STOPS = "。！？।؟۔։።။។"
_START = r"[^\W\d_a-zß-öø-ÿά-ώа-џ]"
# In tokenized text, such as WikiText's, a blank also precedes the punctuation.
_INNER_END = re.compile(
    rf"[^\W\d_A-Z]{{3}}[.!?][\"'”’)]* +[\"'“‘(„«¿¡]*{_START}|[{_STOPS}] *\w"
    rf"|\w [.!?](?: [\"'”’)]+)* +[\"'“‘(„«¿¡]* ?{_START}"
)
_ENDS = tuple(f".!?:;…{_STOPS}")


def detect_format(path: str) -> str:
    """Returns the format of a file, judged by its first 64 KiB.

    The module `corpus` describes the heuristics. Raises `DataError` if the file cannot
    be read or decompressed, or is not text.
    """
    sample = next(TextStream(path).blocks(_SAMPLE), b"")
    if sample.startswith(b"PAR1"):
        return "parquet"
    for start, name in _COMPRESSED.items():
        if sample.startswith(start):
            raise DataError(
                f"{path}: is compressed with {name}; only gzip is supported, unpack it"
            )
    text = sample.decode("utf-8-sig", errors="ignore").lstrip()
    if text.startswith("<doc "):
        return "wikiextractor"
    first = text.partition("\n")[0]
    if first.startswith("{"):
        if len(text) == len(first):  # the line continues after the sample
            return "jsonl"
        try:
            json.loads(first)
            return "jsonl"
        except (ValueError, RecursionError):
            pass
    if _JSON_NAME.search(path) or _JSON_START.match(text):
        raise DataError(
            f"{path}: looks like JSON, but its first line is not a JSON object; "
            "convert it to JSON Lines (one object per line), or set --input_format"
        )
    if _TABLE_NAME.search(path):
        return "table"
    return _layout_of([*map(str.strip, split_lines([text])), ""])


def _layout_of(lines: list[str]) -> str:
    """Returns the format of text without markup."""
    followed = [a for a, b in zip(lines, lines[1:], strict=False) if a and b]
    ended = [x for x in followed if x.rstrip("\"'”’)」』").endswith(_ENDS)]
    single = sum(not _INNER_END.search(line) for line in ended)
    around = zip(["", *lines[:-1]], lines, [*lines[1:], ""], strict=True)
    joined = [len(line) for a, line, b in around if a or b]
    # With empty lines between paragraphs, only headings have lines next to them.
    if not followed or 2 * sum(joined) < sum(map(len, lines)):
        return "paragraphs"
    if single >= 0.6 * len(followed):
        return "lines"
    unwrapped = sum(length for length in joined if length > _UNWRAPPED)
    at_ends = sum(map(len, ended)) >= 0.6 * sum(map(len, followed))
    is_whole = at_ends or 2 * unwrapped >= sum(joined)
    return "paragraph_lines" if is_whole else "paragraphs"


def group_documents(
    texts: Iterator[str | None], counts: Counter, max_chars: int = DOCUMENT_CHARS
) -> Iterator[tuple[list[str], int]]:
    """Yields documents of texts, and the index of each among pieces of a split one.

    A document of more than `max_chars` characters is split into several, so that memory
    stays bounded; "documents_cut" counts the splits.
    """
    document: list[str] = []
    length = piece = 0
    for text in texts:
        if text is None or length >= max_chars:
            if document:
                yield document, piece
            piece = 0 if text is None else piece + 1
            counts["documents_cut"] += text is not None
            document, length = [], 0
        while text:
            part, text = text[:max_chars], text[max_chars:]
            document.append(part)
            length += len(part)
            if text:
                counts["documents_cut"] += 1
                yield document, piece
                document, length, piece = [], 0, piece + 1
    if document:
        yield document, piece


def read_whole_lines(lines: Iterator[str]) -> Iterator[str | None]:
    """Reads a sentence or a paragraph per line, with empty lines between documents."""
    for line in lines:
        yield line.strip() or None


def read_paragraphs(lines: Iterator[str]) -> Iterator[str | None]:
    """Reads ordinary text: lines of a paragraph are joined, and a blank line ends it.

    Two or more blank lines, or the end of the file, end the document.
    """
    current: list[str] = []
    length = blank = 0
    for line in lines:
        line = line.strip()
        if line:
            current.append(line)
            length += len(line)
            blank = 0
            full = length > _PARAGRAPH_CHARS and line.endswith(_SENTENCE_END)
            if not full and length <= MAX_LINE_BYTES:
                continue
        else:
            blank += 1
        if current:
            yield " ".join(current)
            current, length = [], 0
        if blank == 2:
            yield None
    if current:
        yield " ".join(current)


PLAIN = dict.fromkeys(("lines", "paragraph_lines"), read_whole_lines)
PLAIN["paragraphs"] = read_paragraphs


def count_in_sample(path: str, kind: str) -> int:
    """Returns the number of documents in the sample that `detect_format` examines."""
    sample = next(TextStream(path).blocks(_SAMPLE), b"").decode(errors="ignore")
    texts = PLAIN[kind](split_lines([sample]))
    return sum(not piece for _, piece in group_documents(texts, Counter()))


def read_wikiextractor(lines: Iterator[str], counts: Counter) -> Iterator[str | None]:
    """Reads `<doc id=... title="...">` blocks without their title line.

    Documents without text (redirects) are counted as "documents_empty". Lines between
    documents are left out and counted as "lines_outside_documents".
    """
    inside = empty = False
    title = ""
    for line in lines:
        line = line.strip()
        if _DOC.match(line):
            match = re.search(r'title="([^"]*)"', line)
            title, inside, empty = (match.group(1) if match else ""), True, True
            yield None
        elif line.startswith("</doc>"):
            counts["documents_empty"] += inside and empty
            inside = False
            yield None
        elif line and inside:
            if not (empty and line == title):
                empty = False
                yield line
            title = ""
        elif line:
            counts["lines_outside_documents"] += 1


def text_paragraphs(text: str, counts: Counter) -> Iterator[str | None]:
    """Yields the non-blank lines of one document's text, then None."""
    if text.isspace() or not text:
        counts["documents_empty"] += 1
    for line in text.split("\n"):
        if line := line.strip():
            yield line
    yield None


def read_rows(
    stream: TextStream, kind: str, column: str, bad: BadRows, layout: dict
) -> Iterator[str | None]:
    """Reads the strings of a column of a table, JSON Lines or Parquet as documents.

    `kind` is "json" or "parquet"; anything else is a table of cells, written as
    `layout` says. JSON has a field of exactly this name, which any row may lack; `bad`
    handles rows without text. Raises `UsageError` if pyarrow is needed and not
    installed, and `DataError` if the file is damaged, or has no such column.
    """
    path, unit = stream.path, "row"
    with contextlib.ExitStack() as stack:
        if kind == "json":
            unit, objects = typed_rows.json_objects(stream, bad)
            rows = ((number, one.get(column)) for number, one in objects)
        elif kind == "parquet":
            table = stack.enter_context(typed_rows.open_parquet(path))
            names = table.schema_arrow.names
            wanted = [names[find_column(path, column, names)]]
            # Numbers stay numbers, which are not text.
            rows = typed_rows.parquet_rows(table, wanted, _ROWS)
            rows = typed_rows.plain_rows(f"{path}: row", rows, bad, exact=True)
            rows = ((number, row[0]) for number, row in rows)
        else:
            unit, cells = "line", CellReader(stream, bad, **layout)
            names, has_names, lines = cells.open()
            index = find_column(path, column, names, has_names)
            rows = ((line, row[index]) for line, row in lines)
        for number, text in rows:
            if not isinstance(text, str):
                reason, rule = "rows_without_text", f"strings, received {text!r:.80}"
            elif "\0" in text:
                reason, rule = "rows_with_nul_bytes", "text, received a NUL character"
            else:
                text = typed_rows.whole_characters(text, bad.counts)
                yield from text_paragraphs(text, bad.counts)
                continue
            where = f"{path}: {unit} {number}: column {column!r} (--text_column)"
            bad.report(reason, f"{where} must contain {rule}")


def read_tfds(
    name: str, field: str, data_dir: str, bad: BadRows
) -> Iterator[str | None]:
    """Reads the texts of the training split of a TFDS data set, in stored order.

    Raises `DataError` if the set is not prepared, or has no such feature.
    """
    path = tfds_source.prepared_folder(name, data_dir, False)
    with tfds_source.opened(name, path, "train") as (_, rows):
        for row in rows:
            if field not in row:
                hint = did_you_mean(field, row)
                raise DataError(
                    f"{name}: has no feature {field!r} (--text_column), its features "
                    f"are {', '.join(sorted(row))}{hint}"
                )
            try:
                text = row[field].decode()
            except UnicodeDecodeError as error:
                bad.report("rows_not_utf8", f"{name}: a text is not UTF-8: {error}")
            else:
                yield from text_paragraphs(text, bad.counts)
