"""The files that `predict` and `embed` write, one writer per format.

The content of a part is text, bytes of vectors, or for Parquet a table in Arrow's
stream format. Parts are joined to the file that the user named, in the format of its
name.
"""

import contextlib
import csv
import dataclasses
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from albert_tf.errors import UsageError
from albert_tf.heads import CHOICES, LABELS, SPANS, TAGS
from albert_tf.jobs.folder import Part, Workplace
from albert_tf.jobs.run import Job
from albert_tf.storage import files
from albert_tf.tasks import text_classification
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, Task

# Gives the parts of an output in order, every time it is called.
Parts = Callable[[], Iterator[Part]]
VECTORS = "vectors"
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


def choose_format(path: str, answers: str) -> str:
    """Returns the ending of the name of an output, in lower case.

    Args:
        path: str. The file to write.
        answers: str. What is written: `VECTORS`, or as in `heads.HEADS`.

    Raises:
        UsageError: If the name ends in something else than it can be written as, its
            folder does not exist, or pyarrow is missing.
    """
    noun, endings = _ENDINGS[answers]
    ending = os.path.splitext(path)[1].lower().removeprefix(".")
    if ending not in endings:
        *most, last = (f".{name}" for name in endings)
        raise UsageError(
            f"output_file: {noun} are written as {', '.join(most)} or {last}, "
            f"received {path}"
        )
    files.check_new("output_file", path, overwrite=True)
    if ending == "parquet":
        _import_parquet(path)
    return ending


@dataclasses.dataclass(frozen=True)
class Output:
    """One file, or answers to questions with what is next to them.

    Attributes:
        path: str.
        answers: str. As for `choose_format`.
    """

    path: str
    answers: str

    def existing(self) -> list[str]:
        """Returns the files that exist already."""
        return list(filter(files.exists, self.paths()))

    def paths(self, rows: int = 0) -> list[str]:
        """Returns the files that may be written."""
        others = (_NBEST, _ODDS) if self.path.lower().endswith(".json") else ()
        return [self.path, *map(self._next_to, others)]

    def write(self, parts: Parts, place: Workplace) -> list[str]:
        """Joins all parts, each file atomically."""
        ending = choose_format(self.path, self.answers)
        if ending == "json":
            return self._write_json(parts)
        if self.answers == CHOICES and ending in _DELIMITERS:
            write = write_table
        else:
            write = _WRITERS[ending]
        write(self.path, parts)
        return [self.path]

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


def predictions(
    task: Task, job: Job, answers: Any, ending: str, is_named: bool
) -> Part:
    """Returns the answers to the examples of a part.

    Args:
        task: `Task`.
        job: `Job`. Its rows are examples of the task's family.
        answers: Those of the family.
        ending: str. Result of `choose_format`.
        is_named: bool. Whether a column names the texts.
    """
    if isinstance(answers, text_classification.Answers):
        return _texts(job, answers, ending, is_named)
    contents = task.family.prediction_files(task, job.rows, answers, task.options)
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


def _texts(job: Job, answers, ending: str, is_named: bool) -> Part:
    table = job.rows
    is_numbered = text_classification.are_numbers(table.ids, job.first)
    about = {"rows": len(answers), "numbered": is_numbered}
    if ending == "parquet":
        return Part(_table(_text_columns(table, answers, is_named)), about)
    given = answers, table.ids, table.labels
    if ending == "jsonl":
        text = text_classification.answers_lines(*given, job.first)
    else:
        delimiter, header = _DELIMITERS[ending], not job.index
        text = text_classification.answers_table(*given, delimiter, header=header)
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


def vectors(job: Job, values: np.ndarray, ending: str, is_named: bool) -> Part:
    """Returns the vectors of a part, as `predictions` returns its answers."""
    is_numbered = text_classification.are_numbers(job.rows.ids, job.first)
    about = {"rows": len(values), "width": values.shape[1], "numbered": is_numbered}
    if ending == "npy":
        return Part(values.astype("<f4").tobytes(), about)
    if ending == "jsonl":
        return Part(_vector_lines(job, values, is_numbered), about)
    import pyarrow as pa

    flat = pa.array(values.reshape(-1), pa.float32())
    columns = {
        "index": _index(job.rows.ids, is_named),
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


def write_text(path: str, parts: Parts) -> None:
    """Writes parts of text one after the other."""
    with files.open_atomically(path) as file:
        for part in parts():
            file.write(part.content)


def write_table(path: str, parts: Parts) -> None:
    """Writes parts with tabs and a header each, whose last columns some may lack."""

    def rows(part):
        text = part.content.decode()
        return list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))

    header = max((rows(part)[0] for part in parts()), key=len)
    delimiter = _DELIMITERS[os.path.splitext(path)[1].lower().removeprefix(".")]
    with files.open_atomically(path) as file:
        for index, part in enumerate(parts()):
            out = io.StringIO()
            writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
            if not index:
                writer.writerow(header)
            for row in rows(part)[1:]:
                writer.writerow(row + [""] * (len(header) - len(row)))
            file.write(out.getvalue().encode())


def write_json_lines(path: str, parts: Parts) -> None:
    """Writes JSON lines that begin with an index.

    `about["numbered"]` of a part says whether its indices are numbers. They are written
    as names if those of another part are names.
    """
    kinds = {part.about["numbered"] for part in parts()}
    with files.open_atomically(path) as file:
        for part in parts():
            content = part.content
            if len(kinds) > 1 and part.about["numbered"]:
                content = _NUMBER.sub(rb'{"index": "\1"', content)
            file.write(content)


def write_vectors(path: str, parts: Parts) -> None:
    """Writes an array `[rows, width]` of float32 in NumPy's format."""
    abouts = [part.about for part in parts()]
    shape = (sum(one["rows"] for one in abouts), abouts[0]["width"])
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with files.open_atomically(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts():
            file.write(part.content)


def write_parquet(path: str, parts: Parts) -> None:
    """Writes a Parquet file with a row group for every part."""
    pa, parquet = _import_parquet(path)
    with files.open_atomically(path) as file, contextlib.ExitStack() as stack:
        writer = None
        for part in parts():
            table = pa.ipc.open_stream(part.content).read_all()
            if writer is None:
                writer = parquet.ParquetWriter(_Sink(file), table.schema)
                stack.callback(writer.close)
            writer.write_table(table)


_WRITERS = {
    "tsv": write_text,
    "csv": write_text,
    "jsonl": write_json_lines,
    "parquet": write_parquet,
    "npy": write_vectors,
}


def _import_parquet(path: str) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            f"output_file: {path}: writing parquet needs pyarrow: "
            "pip install albert_tf[parquet]"
        ) from None
    return pa, parquet


class _Sink(io.RawIOBase):
    """What pyarrow can write to, over a file that can only be appended to."""

    def __init__(self, file: IO[bytes]):
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._file.write(bytes(data))
        return len(data)
