"""The files that `predict` and `embed` write, with one writer per format.

The content of a part is JSON, bytes of vectors, or for Parquet a table in Arrow's
stream format. Parts are joined to the file that the user named, in the format of its
name's ending.
"""

import dataclasses
import importlib.util
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from albert_tf.errors import require
from albert_tf.heads import CHOICES, HEADS, LABELS, SPANS, TAGS, VECTORS
from albert_tf.jobs.folder import Part
from albert_tf.jobs.run import Job
from albert_tf.storage import files
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, Task, table_text

# Yields the parts of an output in order, on every call.
Parts = Callable[[], Iterator[Part]]
# Texts in an order, which no single head gives.
RANKED = "ranked"
# What is recorded next to an array of vectors, to recognize their model.
RECORDED = ("model", "layer", "pooling", "role", "dimension", "max_seq_length")
# The nouns for kinds of answers, and the endings of their files.
_ENDINGS = {
    VECTORS: ("vectors", ("npy", "jsonl", "parquet")),
    LABELS: ("predictions for texts", ("tsv", "csv", "jsonl", "parquet")),
    CHOICES: ("choices", ("tsv", "csv", "jsonl", "parquet")),
    TAGS: ("tags of words", ("tsv", "jsonl", "parquet")),
    SPANS: ("answers to questions", ("json", "parquet")),
    RANKED: ("texts", ("tsv", "csv", "jsonl", "parquet")),
}
_DELIMITERS = {"tsv": "\t", "csv": ","}
# The original's files of answers to questions, by the ending of their names, and the
# key of their content.
_OF_SPANS = {
    ".json": "prediction",
    "_nbest.json": "nbest",
    "_null_odds.json": "null_odds",
}
_NUMBER = re.compile(rb'^\{"index": (\d+)', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Output:
    """One output file, or answers to questions with their additional files.

    Attributes:
        path: str. The file to write; its ending chooses the format.
        answers: str. Kind of the answers, as in `heads.HEADS`.
        named: bool. Whether a column names the rows.
    """

    path: str
    answers: str
    named: bool = False

    @property
    def ending(self) -> str:
        """The ending of the name, in lower case."""
        return os.path.splitext(self.path)[1].lower().removeprefix(".")

    def check(self) -> None:
        """Raises `UsageError` if the file cannot be written.

        The reasons are an ending that does not fit the answers, a missing folder, or a
        missing pyarrow.
        """
        noun, endings = _ENDINGS[self.answers]
        *most, last = (f".{name}" for name in endings)
        expected = f"output_file: {noun} are written as {', '.join(most)} or {last}"
        require(self.ending in endings, f"{expected}, received {self.path}")
        if self.ending == "npy":
            expected = "id_column: an .npy file holds vectors alone; write .jsonl or "
            require(not self.named, f"{expected}.parquet")
        files.check_new("output_file", self.path, overwrite=True)
        if self.ending == "parquet":
            expected = f"output_file: {self.path}: writing parquet needs pyarrow: "
            there = importlib.util.find_spec("pyarrow")
            require(there, f"{expected}pip install albert_tf[parquet]")

    def existing(self) -> list[str]:
        """Returns the output files that already exist."""
        return list(filter(files.exists, self.paths()))

    def paths(self) -> list[str]:
        """Returns the files to which the answers may be written."""
        stem, _ = os.path.splitext(self.path)
        more = [*_OF_SPANS][1:] if self.ending == "json" else []
        return [self.path, *(f"{stem}{end}" for end in more)]

    def write(self, parts: Parts) -> list[str]:
        """Joins all parts, each file atomically, and returns the paths of the files."""
        if self.ending == "json":
            rows = itertools.chain.from_iterable(json.loads(p.content) for p in parts())
            contents = _of_spans(list(rows))
            paths = self.paths()[: len(contents)]
            for path, text in zip(paths, contents.values(), strict=True):
                files.write_text(path, text)
            return paths
        with files.open_atomically(self.path) as file:
            if self.ending == "parquet":
                _write_parquet(file, parts)
                return [self.path]
            for content in self._contents(parts):
                file.write(content)
        return [self.path]

    def _contents(self, parts: Parts) -> Iterator[bytes]:
        """Yields the contents of a file of bytes or of text."""
        if self.answers == CHOICES and self.ending in _DELIMITERS:
            header = max((json.loads(part.content)[0] for part in parts()), key=len)
            tables = (json.loads(part.content) for part in parts())
            for text in _tables(self.answers, tables, header, _DELIMITERS[self.ending]):
                yield text.encode()
            return
        if self.ending == "npy":
            yield _npy_header([part.about for part in parts()])
        # JSON lines begin with an index. All indices are written as names if those of
        # one part are names.
        lines = parts() if self.ending == "jsonl" else ()
        is_mixed = len({part.about["numbered"] for part in lines}) > 1
        for part in parts():
            if is_mixed and part.about["numbered"]:
                yield _NUMBER.sub(rb'{"index": "\1"', part.content)
            else:
                yield part.content


def predictions(output: Output, task: Task, job: Job, answers: Any) -> Part:
    """Returns the answers to the examples of a part, which are rows of the job."""
    examples, ending = job.rows, output.ending
    is_numbered = output.answers == LABELS and _are_numbers(examples.ids, job.first)
    about = {"rows": len(examples), "numbered": is_numbered}
    if ending in _DELIMITERS:
        cells = task.cells(examples, answers)
        if output.answers != TAGS:  # no words, no rows
            empty = [""] * (len(cells[0]) - 1)
            cells[1:] = _emptied(examples, cells[1:], lambda row: [row[0], *empty])
        # In choices, another part may have more columns.
        if output.answers == CHOICES:
            return Part(json.dumps(cells).encode(), about)
        texts = _tables(output.answers, [cells], cells[0], _DELIMITERS[ending])
        if output.answers == LABELS and job.first:
            next(texts)  # the header
        return Part("".join(texts).encode(), about)
    if ending == "parquet" and output.answers == LABELS:
        return Part(_table(_text_columns(examples, answers, output.named)), about)
    rows = task.rows(examples, answers)
    first, name = rows[0], next(iter(rows[0]))
    rows = _emptied(examples, rows, lambda x: dict.fromkeys(x) | {name: x[name]})
    if ending == "parquet":
        return Part(_table_of_rows(first, rows), about)
    if ending == "json":
        return Part(json.dumps(rows).encode(), about)
    return Part(_lines(rows, is_numbered).encode(), about)


def rows_of(output: Output, job: Job, rows: Sequence[Mapping[str, Any]]) -> Part:
    """Returns rows with the same columns as the content of a part."""
    about = {"rows": len(rows), "numbered": False}
    if output.ending == "parquet":
        return Part(_table_of_rows(rows[0], rows), about)
    if output.ending == "jsonl":
        return Part(_lines(rows, False).encode("utf-8", "replace"), about)
    table = [[str(value) for value in row.values()] for row in rows]
    header = [] if job.first else [list(rows[0])]
    text = table_text(header + table, _DELIMITERS[output.ending])
    return Part(text.encode("utf-8", "replace"), about)


def record_of(path: str) -> str:
    """Returns the file next to an array of vectors that says how they were made."""
    return f"{path}.json"


def _emptied(examples: Any, rows: list, empty: Callable[[Any], Any]) -> list:
    """Returns rows of answers, with `empty(row)` for rows that could not be read."""
    problems = examples.problems or [""] * len(rows)
    return [empty(row) if x else row for row, x in zip(rows, problems, strict=True)]


def prediction_files(task: Task, examples: Any, answers: Any) -> dict[str, str]:
    """Returns the contents of files of predictions, by the ending of their names.

    These are `".tsv"` and `".jsonl"`, or for answers to questions the original's files:
    `".json"` (answers by id), `"_nbest.json"`, `"_null_odds.json"`.
    """
    kind, rows = HEADS[task.head].answers, task.rows(examples, answers)
    if kind == SPANS:
        return _of_spans(rows)
    cells = task.cells(examples, answers)
    is_numbered = kind == LABELS and _are_numbers(examples.ids, 0)
    table = "".join(_tables(kind, [cells], cells[0], "\t"))
    return {".tsv": table, ".jsonl": _lines(rows, is_numbered)}


def _tables(
    kind: str, tables: Iterable[list], header: list[str], delimiter: str
) -> Iterator[str]:
    """Yields the text of tables as one table; some may lack the last columns."""
    if kind == TAGS:  # conlleval expects neither a header nor quotes
        for rows in tables:
            yield "".join("\t".join(row) + "\n" for row in rows)
        return
    yield table_text([header], delimiter)
    for _, *rows in tables:
        widened = (row + [""] * (len(header) - len(row)) for row in rows)
        yield table_text(widened, delimiter)


def _lines(rows: Iterable[Mapping[str, Any]], is_numbered: bool) -> str:
    """Returns rows as JSON lines; numeric indices are written as numbers."""
    if is_numbered:
        rows = (row | {"index": int(row["index"])} for row in rows)
    return "".join(files.to_json(row, ensure_ascii=False) + "\n" for row in rows)


def _of_spans(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the contents of the original's files, each of which is one object."""
    contents = {
        end: {row["id"]: row[key] for row in rows}
        for end, key in _OF_SPANS.items()
        if key in rows[0]
    }
    # ASCII only: a text may hold a lone surrogate, which UTF-8 cannot represent.
    return {
        end: json.dumps(values, indent=4, allow_nan=False) + "\n"
        for end, values in contents.items()
    }


def _are_numbers(ids: Sequence[str], first: int) -> bool:
    """Returns whether ids are the indices of the rows, starting at `first`."""
    return all(name == str(i) for i, name in enumerate(ids, first))


def _text_columns(table, answers, is_named: bool) -> dict[str, Any]:
    """Returns the columns of a Parquet file."""
    import pyarrow as pa

    text, several = pa.string(), pa.list_(pa.string())
    kinds = {REGRESSION: pa.float64(), MULTI_LABEL: several}
    columns = {"index": _index(table.ids, is_named)}
    if table.labels is not None:
        is_list = answers.problem_type == MULTI_LABEL
        labels = [list(one) if is_list else str(one) for one in table.labels]
        columns["label"] = pa.array(labels, several if is_list else text)
    predicted = [answers.text(i) for i in range(len(answers))]
    kind = kinds.get(answers.problem_type, text)
    mask = np.array([*map(bool, table.problems or [""] * len(answers))])
    columns["prediction"] = pa.array(predicted, kind, mask=mask)
    for i, label in enumerate(answers.labels):
        scores = answers.scores[:, i]
        columns[f"probability_{label}"] = pa.array(scores, pa.float32(), mask=mask)
    return columns


def vectors(output: Output, job: Job, values: np.ndarray) -> Part:
    """Returns the vectors of a part, as `predictions` returns its answers."""
    is_numbered = _are_numbers(job.rows.ids, job.first)
    about = {"rows": len(values), "width": values.shape[1], "numbered": is_numbered}
    if output.ending == "npy":
        return Part(values.astype("<f4").tobytes(), about)
    if output.ending == "jsonl":
        return Part(_vector_lines(job, values, is_numbered), about)
    import pyarrow as pa

    flat = pa.array(values.reshape(-1), pa.float32())
    columns = {
        "index": _index(job.rows.ids, output.named),
        "vector": pa.FixedSizeListArray.from_arrays(flat, values.shape[1]),
    }
    return Part(_table(columns), about)


def _vector_lines(job: Job, values: np.ndarray, is_numbered: bool) -> bytes:
    lines = []
    for i, (name, row) in enumerate(zip(job.rows.ids, values.tolist(), strict=True)):
        index = job.first + i if is_numbered else json.dumps(name, ensure_ascii=False)
        # Nine digits reproduce the same float32.
        numbers = ", ".join(f"{value:.9g}" for value in row)
        lines.append(f'{{"index": {index}, "vector": [{numbers}]}}\n')
    return "".join(lines).encode()


def _index(ids: Sequence[str], is_named: bool) -> Any:
    """Returns a Parquet column of the rows' names, or of their numbers."""
    import pyarrow as pa

    if is_named:
        return pa.array(ids, pa.string())
    return pa.array(map(int, ids), pa.int64())


def _table_of_rows(first: Mapping, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns rows as the content of a part; `first`, an answer, gives the columns."""
    import pyarrow as pa

    def kind(value):
        if isinstance(value, dict):
            return pa.struct({name: kind(inner) for name, inner in value.items()})
        if isinstance(value, list):
            return pa.list_(kind(value[0]) if value else pa.string())
        number = pa.int64() if type(value) is int else pa.float64()
        return pa.string() if isinstance(value, str) else number

    # UTF-8 cannot represent half characters, which a text may contain.
    text = json.dumps([first, *rows], ensure_ascii=False).encode("utf-8", "replace")
    first, *rows = json.loads(text)
    kinds = {name: kind(value) for name, value in first.items()}
    return _table({n: pa.array([r.get(n) for r in rows], kinds[n]) for n in kinds})


def _table(columns: Mapping[str, Any]) -> bytes:
    """Returns arrays of Arrow as the content of a part of a Parquet file."""
    import pyarrow as pa

    table = pa.table(dict(columns))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _npy_header(abouts: Sequence[Mapping[str, int]]) -> bytes:
    """Returns the header of an array `[rows, width]` of float32 in NumPy's format."""
    shape = (sum(one["rows"] for one in abouts), abouts[0]["width"])
    header, out = {"descr": "<f4", "fortran_order": False, "shape": shape}, io.BytesIO()
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue()


def _write_parquet(file: IO[bytes], parts: Parts) -> None:
    """Writes a Parquet file with a row group for every part."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = (pa.ipc.open_stream(part.content).read_all() for part in parts())
    first = next(tables)
    with parquet.ParquetWriter(_Sink(file), first.schema) as writer:
        for table in itertools.chain([first], tables):
            writer.write_table(table)


class _Sink(io.RawIOBase):
    """A file for pyarrow, over one that can only be appended to."""

    def __init__(self, file: IO[bytes]):
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._file.write(bytes(data))
        return len(data)
