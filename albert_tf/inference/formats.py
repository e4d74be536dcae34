"""The files that `predict` and `embed` write, one writer per format.

The content of a part is text, bytes of vectors, or for Parquet a table in Arrow's
stream format. Parts are joined to the file that the user named, in the format of its
name.
"""

import csv
import dataclasses
import importlib.util
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from albert_tf.errors import require
from albert_tf.heads import CHOICES, LABELS, SPANS, TAGS, VECTORS
from albert_tf.jobs.folder import Part, Workplace
from albert_tf.jobs.run import Job
from albert_tf.storage import files
from albert_tf.tasks import text_classification
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, Task

# Gives the parts of an output in order, every time it is called.
Parts = Callable[[], Iterator[Part]]
# What is written, and the endings of the files.
_ENDINGS = {
    VECTORS: ("vectors", ("npy", "jsonl", "parquet")),
    LABELS: ("predictions for texts", ("tsv", "csv", "jsonl", "parquet")),
    CHOICES: ("choices", ("tsv", "csv", "jsonl", "parquet")),
    TAGS: ("tags of words", ("tsv", "jsonl", "parquet")),
    SPANS: ("answers to questions", ("json", "parquet")),
}
_DELIMITERS = {"tsv": "\t", "csv": ","}
# Files of answers to questions, next to the one that the user names.
_NBEST, _ODDS = "_nbest.json", "_null_odds.json"
_NUMBER = re.compile(rb'^\{"index": (\d+)', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Output:
    """One file, or answers to questions with what is next to them.

    Attributes:
        path: str. The file to write; its ending chooses the format.
        answers: str. What is written, as in `heads.HEADS`.
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
        """Raises a UsageError if the file cannot be written.

        Its name ends in something else than it can be written as, its folder does not
        exist, or pyarrow is missing.
        """
        noun, endings = _ENDINGS[self.answers]
        *most, last = (f".{name}" for name in endings)
        rule = f"output_file: {noun} are written as {', '.join(most)} or {last}"
        require(self.ending in endings, f"{rule}, received {self.path}")
        if self.ending == "npy":
            rule = "id_column: an .npy file holds vectors alone; write .jsonl or "
            require(not self.named, f"{rule}.parquet")
        files.check_new("output_file", self.path, overwrite=True)
        if self.ending == "parquet":
            rule = f"output_file: {self.path}: writing parquet needs pyarrow: "
            there = importlib.util.find_spec("pyarrow")
            require(there, f"{rule}pip install albert_tf[parquet]")

    def existing(self) -> list[str]:
        """Returns the files that exist already."""
        return list(filter(files.exists, self.paths()))

    def paths(self, rows: int = 0) -> list[str]:
        """Returns the files that this number of answers may be written to."""
        del rows
        others = (_NBEST, _ODDS) if self.ending == "json" else ()
        return [self.path, *map(self._next_to, others)]

    def write(self, parts: Parts, place: Workplace) -> list[str]:
        """Joins all parts, each file atomically, and returns the paths of the files."""
        del place
        if self.ending == "json":
            return self._write_json(parts)
        with files.open_atomically(self.path) as file:
            if self.ending == "parquet":
                _write_parquet(file, parts)
                return [self.path]
            for content in self._contents(parts):
                file.write(content)
        return [self.path]

    def _contents(self, parts: Parts) -> Iterator[bytes]:
        """Yields what a file of bytes or of text consists of."""
        if self.answers == CHOICES and self.ending in _DELIMITERS:
            yield from _choices(parts, _DELIMITERS[self.ending])
            return
        if self.ending == "npy":
            yield _npy_header([part.about for part in parts()])
        # JSON lines begin with an index. They are all written as names if those of one
        # part are names.
        lines = parts() if self.ending == "jsonl" else ()
        is_mixed = len({part.about["numbered"] for part in lines}) > 1
        for part in parts():
            if is_mixed and part.about["numbered"]:
                yield _NUMBER.sub(rb'{"index": "\1"', part.content)
            else:
                yield part.content

    def _next_to(self, name: str) -> str:
        return f"{os.path.splitext(self.path)[0]}{name}"

    def _write_json(self, parts: Parts) -> list[str]:
        """Writes the original's files, each of which is one object."""
        joined: dict[str, dict] = {}
        for part in parts():
            for name, content in json.loads(part.content).items():
                joined.setdefault(name, {}).update(content)
        paths = []
        for name, content in joined.items():
            paths.append(self.path if name == ".json" else self._next_to(name))
            text = json.dumps(content, indent=4, allow_nan=False) + "\n"
            files.write_text(paths[-1], text)
        return paths


def predictions(output: Output, task: Task, job: Job, answers: Any) -> Part:
    """Returns the answers to the examples of a part.

    Args:
        output: `Output`. What the part belongs to.
        task: `Task`.
        job: `Job`. Its rows are examples of the task's family.
        answers: Those of the family.
    """
    ending = output.ending
    if output.answers == LABELS:
        return _texts(output, job, answers)
    contents = task.prediction_files(job.rows, answers)
    about = {"rows": len(job.rows), "numbered": False}
    if ".json" in contents:
        objects = {name: json.loads(text) for name, text in contents.items()}
        if ending == "json":
            return Part(json.dumps(objects).encode(), about)
        rows = list(_spans(objects))
    else:
        rows = [json.loads(line) for line in contents[".jsonl"].splitlines()]
    if ending == "parquet":
        return Part(_table_of_rows(rows), about)
    # A table of choices gets the delimiter of the file when it is written.
    return Part(contents[".jsonl" if ending == "jsonl" else ".tsv"].encode(), about)


def _texts(output: Output, job: Job, answers: text_classification.Answers) -> Part:
    table, ending = job.rows, output.ending
    is_numbered = text_classification.are_numbers(table.ids, job.first)
    about = {"rows": len(answers), "numbered": is_numbered}
    if ending == "parquet":
        return Part(_table(_text_columns(table, answers, output.named)), about)
    given = table.ids, table.labels
    if ending == "jsonl":
        text = answers.lines(*given, job.first)
    else:
        delimiter, header = _DELIMITERS[ending], not job.index
        text = answers.table(*given, delimiter, header=header)
    return Part(text.encode(), about)


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
    found = [answers.text(i) for i in range(len(answers))]
    columns["prediction"] = pa.array(found, kinds.get(answers.problem_type, text))
    for i, label in enumerate(answers.labels):
        columns[f"probability_{label}"] = pa.array(answers.scores[:, i], pa.float32())
    return columns


def _spans(objects: Mapping[str, Mapping]) -> Iterator[dict[str, Any]]:
    """Yields the answers to questions as rows."""
    for name, text in objects[".json"].items():
        row = {"id": name, "prediction": _whole(text)}
        if _ODDS in objects:
            row["null_odds"] = objects[_ODDS][name]
        nbest = [one | {"text": _whole(one["text"])} for one in objects[_NBEST][name]]
        yield row | {"nbest": nbest}


def _whole(text: str) -> str:
    """Returns a text without half characters, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def vectors(output: Output, job: Job, values: np.ndarray) -> Part:
    """Returns the vectors of a part, as `predictions` returns its answers."""
    is_numbered = text_classification.are_numbers(job.rows.ids, job.first)
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
        # Nine digits give the same float32 again.
        numbers = ", ".join(f"{value:.9g}" for value in row)
        lines.append(f'{{"index": {index}, "vector": [{numbers}]}}\n')
    return "".join(lines).encode()


def _index(ids: Sequence[str], is_named: bool) -> Any:
    """Returns the column of the rows' names, or of their numbers, for Parquet."""
    import pyarrow as pa

    if is_named:
        return pa.array(ids, pa.string())
    return pa.array(map(int, ids), pa.int64())


def _table_of_rows(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns rows as the content of a part; the first one tells the columns."""
    import pyarrow as pa

    def kind(value):
        if isinstance(value, dict):
            return pa.struct({name: kind(inner) for name, inner in value.items()})
        if isinstance(value, list):
            return pa.list_(kind(value[0]) if value else pa.string())
        return pa.string() if isinstance(value, str) else pa.float64()

    names = rows[0]
    return _table(
        {n: pa.array([r.get(n) for r in rows], kind(names[n])) for n in names}
    )


def _table(columns: Mapping[str, Any]) -> bytes:
    """Returns arrays of Arrow as the content of a part of a Parquet file."""
    import pyarrow as pa

    table = pa.table(dict(columns))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _choices(parts: Parts, delimiter: str) -> Iterator[bytes]:
    """Yields parts, whose last columns some may lack, as one table of choices."""

    def rows(part):
        text = part.content.decode()
        return list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))

    header = max((rows(part)[0] for part in parts()), key=len)
    for index, part in enumerate(parts()):
        out = io.StringIO()
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        if not index:
            writer.writerow(header)
        for row in rows(part)[1:]:
            writer.writerow(row + [""] * (len(header) - len(row)))
        yield out.getvalue().encode()


def _npy_header(abouts: Sequence[Mapping[str, int]]) -> bytes:
    """Returns what comes before an array `[rows, width]` of float32 in NumPy's format.

    Args:
        abouts: sequence of dicts. Of the parts.
    """
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
    """What pyarrow can write to, over a file that can only be appended to."""

    def __init__(self, file: IO[bytes]):
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._file.write(bytes(data))
        return len(data)
