"""Finds the format of an input file."""

import json
import re

from albert_tf.data.corpus.source import open_source
from albert_tf.errors import DataError

_SAMPLE = 1 << 16


def detect_format(path: str) -> str:
    """Returns the format of a file, judged by its first 64 KiB.

    The module `corpus` describes the rule.

    Raises:
        DataError: If the file cannot be read or decompressed, or is not text.
    """
    try:
        with open_source(path) as file:
            sample = file.read(_SAMPLE)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read: {reason}") from error
    if sample.startswith(b"PAR1"):
        return "parquet"
    _check_is_text(path, sample)
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
    lines = [line.strip() for line in text.split("\n")]
    followed = [a for a, b in zip(lines, lines[1:], strict=False) if a and b]
    single = sum(
        line.rstrip("\"'”’)」』").endswith(_ENDS) and not _INNER_END.search(line)
        for line in followed
    )
    # Text with one line per paragraph has neighbouring lines only in headings.
    around = zip(["", *lines[:-1]], lines, [*lines[1:], ""], strict=True)
    joined = sum(len(line) for a, line, b in around if a or b)
    bulk = 2 * joined >= sum(map(len, lines))
    is_lines = followed and bulk and single >= 0.6 * len(followed)
    return "lines" if is_lines else "paragraphs"


def _check_is_text(path: str, sample: bytes) -> None:
    for start, name in _COMPRESSED.items():
        if sample.startswith(start):
            raise DataError(
                f"{path}: is compressed with {name}; only gzip is supported, unpack it"
            )


_COMPRESSED = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


_JSON_NAME = re.compile(r"\.(json|jsonl|ndjson)(\.gz)?$", re.IGNORECASE)


_TABLE_NAME = re.compile(r"\.(csv|tsv)(\.gz)?$", re.IGNORECASE)


_JSON_START = re.compile(r'\[?\s*\{\s*"')


# Text split into tokens, such as WikiText's, has blanks before the punctuation too.
_INNER_END = re.compile(
    r"[a-z]{3}[.!?][\"'”’)]* +[A-Z]|[。！？]\w"
    r"|\w [.!?](?: [\"'”’)]+)* +[\"'“‘(]* ?[A-Z]"
)


_ENDS = tuple(".!?:;…。！？।")
