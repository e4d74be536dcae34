"""Answers files of any size with a SavedModel, to the last digit on any machine.

Legend: `B` texts in a batch, `K` choices, entities, words or masks of a text.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.errors import DataError, UsageError, require
from albert_tf.inference.files import Summary, answer_file
from albert_tf.inference.formats import Parts
from albert_tf.inference.forward import alone_at_first, limit_tensorflow
from albert_tf.inference.settings import BulkSettings, ServedSettings
from albert_tf.jobs.folder import Part, Workplace, check_output, split_evenly
from albert_tf.jobs.run import Job
from albert_tf.storage import files, hubs, streams
from albert_tf.tables.reader import ColumnReader
from albert_tf.tables.text_stream import TextStream
from albert_tf.tasks.outputs import in_threads

_ROWS_PER_FILE = 100_000
_MODEL_FILE = "saved_model.pb"
# Names every tensor with its checksum.
_INDEX_FILE = "variables/variables.index"
# The outputs that say how many entries of a row are its own. Another output may begin
# with `num_` too: `num_layers` is the number of layers that an exit rule computed.
_COUNTS = frozenset({"num_entities", "num_masks", "num_words"})


def is_saved_model(path: str) -> bool:
    """Returns whether a folder holds a SavedModel."""
    return not hubs.is_name(path) and files.exists(files.join(path, _MODEL_FILE))


def predict_served(
    model: str,
    input_file: str,
    output_file: str,
    served: ServedSettings,
    bulk: BulkSettings,
    batch_size: int = 32,
    overwrite: bool = False,
) -> Summary:
    """Writes the answers of a SavedModel to all rows as JSON Lines.

    A line has the index of the row in all files, `index`, then the copied columns and
    the outputs of the signature.

    Args:
        model: str. Folder of the SavedModel.
        input_file: str. Comma-separated files or globs.
        output_file: str. Prefix of the files, or one file that ends in `.jsonl`.
        served: `ServedSettings`.
        bulk: `BulkSettings`.
        batch_size: int. Texts of a part that the model sees at once.
        overwrite: bool. Whether existing answers may be replaced.

    Raises:
        UsageError: If a setting is invalid, or files exist.
        DataError: If a file or the model cannot be read.
    """
    bulk.check_runner()
    output = _Files(output_file, served.num_shards)
    check_output(f"{output.path}.parts", output.existing(), overwrite)
    rows = Rows(find_files(input_file), _choose_reading(model, served))
    _check_count(Rows(rows.paths, rows.reading), served.num_shards or 1)
    settings = {
        "command": "predict",
        "model": digest(model),
        "input_file": rows.paths,
        **dataclasses.asdict(rows.reading),
        "signature": served.signature,
        "batch_size": batch_size,
    }
    work = ServedWork(model, served.signature, batch_size)
    return answer_file(work, rows, output, settings, bulk, overwrite)


def _check_count(rows: "Rows", num_shards: int) -> None:
    """Raises a UsageError if there are fewer rows than files to write."""
    total = 0
    for block in rows.portions(num_shards):
        total += len(block)
        if total >= num_shards:
            return
    raise UsageError(f"num_shards: {num_shards} files, but only {total} texts")


@dataclasses.dataclass(frozen=True)
class ServedWork:
    """Answers of a SavedModel; see `run.Work`."""

    model: str
    signature: str
    batch_size: int

    def open(self, num_threads: int) -> Callable[[Job, Callable[[int], None]], Part]:
        model = ServedModel(self.model, self.signature, num_threads)

        def compute(job: Job, on_rows: Callable[[int], None]) -> Part:
            lines = []
            for k, answer in enumerate(model.answer(job.rows.inputs, self.batch_size)):
                copied = {name: v[k] for name, v in job.rows.copied.items()}
                row = {"index": job.first + k, **copied, **answer}
                lines.append(files.to_json(row, ensure_ascii=False) + "\n")
            on_rows(len(lines))
            return Part("".join(lines).encode(), {"rows": len(lines)})

        return compute


@dataclasses.dataclass(frozen=True)
class _Files:
    """Files of equal numbers of lines, or a single one."""

    path: str
    num_shards: int | None

    def __post_init__(self):
        if not os.path.basename(self.path):
            raise UsageError(
                f"output_file: must name files or a prefix, received {self.path!r}"
            )
        if self._is_single and self.num_shards not in (None, 1):
            raise UsageError(
                f"num_shards: {self.num_shards}, but output_file names one file"
            )

    @property
    def _is_single(self) -> bool:
        return self.path.endswith(".jsonl")

    def existing(self) -> list[str]:
        if self._is_single:
            return [self.path] * files.exists(self.path)
        number = "[0-9]" * 5
        pattern = f"{streams.escape(self.path)}-{number}-of-{number}.jsonl"
        return streams.glob(pattern)

    def paths(self, rows: int) -> list[str]:
        if self._is_single:
            return [self.path]
        count = self.num_shards or math.ceil(rows / _ROWS_PER_FILE)
        return [f"{self.path}-{k:05d}-of-{count:05d}.jsonl" for k in range(count)]

    def write(self, parts: Parts, place: Workplace) -> list[str]:
        """Writes all files to the workplace before old ones are replaced."""
        total = sum(part.about["rows"] for part in parts())
        paths = self.paths(total)
        lines = itertools.chain.from_iterable(
            part.content.splitlines(keepends=True) for part in parts()
        )
        written = []
        for index, (begin, end) in enumerate(split_evenly(total, len(paths))):
            written.append(place.join(f"shard-{index:06d}"))
            with files.open_atomically(written[-1]) as file:
                file.writelines(itertools.islice(lines, end - begin))
        for new, path in zip(written, paths, strict=True):
            files.rename(new, path)
        for path in set(self.existing()) - set(paths):
            files.remove(path)
        return paths


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the rows of all files are read.

    Attributes:
        columns: dict. Column by input of the model.
        ranks: dict. Rank of the tensor by input: 1 for a text per row, 2 for a list.
        copied: tuple of str. Columns that are copied to the answers.
    """

    columns: dict[str, str]
    ranks: dict[str, int]
    copied: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Neighbouring rows of a file: lists of values by input and by column."""

    inputs: dict[str, list]
    copied: dict[str, list]

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


class Rows:
    """The rows of files, to be read in portions, none of which spans two files.

    Args:
        paths: sequence of str.
        reading: `Reading`.

    Raises:
        UsageError: If a file of lines cannot give what the model takes.
    """

    def __init__(self, paths: Sequence[str], reading: Reading):
        self.paths = list(paths)
        self.reading = reading
        self._done = 0
        for name in map(os.path.basename, filter(_is_plain_text, paths)):
            if len(reading.columns) > 1 or 2 in reading.ranks.values():
                raise UsageError(
                    f"input_file: {name} has one text per line, but the signature "
                    f"takes {', '.join(reading.columns)}; use .jsonl, .parquet, .csv "
                    "or .tsv"
                )
            if reading.copied:
                raise UsageError(
                    f"copy_columns: {name} has no columns, received "
                    f"{', '.join(reading.copied)}"
                )

    def fraction(self) -> float:
        """Returns how many of the files have been read, from 0 to 1."""
        return self._done / len(self.paths)

    def portions(self, rows: int) -> Iterator[RowBlock]:
        """Yields blocks of this number of rows; the last one of a file has fewer.

        Raises:
            DataError: If a file cannot be read, or a value is not a text; the message
                names the line. If there are no rows.
        """
        is_empty = True
        for path in self.paths:
            blocks = self._lines if _is_plain_text(path) else self._columns
            for block in blocks(path, rows):
                is_empty = False
                yield block
            self._done += 1
        if is_empty:
            raise DataError(f"input_file: {', '.join(self.paths)}: contains no text")

    def _lines(self, path: str, rows: int) -> Iterator[RowBlock]:
        (name,) = self.reading.columns
        lines = TextStream(path).lines()
        while block := list(itertools.islice(lines, rows)):
            yield RowBlock({name: block}, {})

    def _columns(self, path: str, rows: int) -> Iterator[RowBlock]:
        reading = self.reading
        wanted = list(dict.fromkeys([*reading.columns.values(), *reading.copied]))
        exact = set(reading.copied) - set(reading.columns.values())
        for table in ColumnReader(path, wanted, exact=exact).portions(rows):
            inputs = {
                name: _checked(table, column, reading.ranks[name])
                for name, column in reading.columns.items()
            }
            copied = {column: table.values[column] for column in reading.copied}
            yield RowBlock(inputs, copied)


def _checked(table, column: str, rank: int) -> list:
    """Returns the values of a column if all are texts, or lists of texts."""
    for row, value in enumerate(table.values[column]):
        if rank == 1:
            fits, expected = isinstance(value, str), "a text"
        else:
            fits = isinstance(value, list) and all(isinstance(x, str) for x in value)
            expected = "a list of texts"
        if not fits:
            raise DataError(
                f"{table.where(row)}: column {column!r}: expected {expected}, received "
                f"{json.dumps(value)[:80]}"
            )
    return table.values[column]


def find_files(inputs: str) -> list[str]:
    """Returns the files that `input_file` names, in its order; globs are sorted.

    Raises:
        DataError: If a file is missing.
        UsageError: If no file is named.
    """
    paths: dict[str, None] = {}
    for part in filter(None, map(str.strip, inputs.split(","))):
        found = [path for path in streams.glob(part) if not files.is_folder(path)]
        if not found:
            raise DataError(f"input_file: {part}: no such file")
        paths |= dict.fromkeys(found)
    require(paths, "input_file: must name a file", inputs)
    return list(paths)


def _is_plain_text(path: str) -> bool:
    """Returns whether a file has a text per line instead of columns."""
    return path.lower().removesuffix(".gz").endswith(".txt")


def _choose_reading(model: str, served: ServedSettings) -> Reading:
    """Returns how rows are read, checked against the inputs of the signature."""
    ranks, given = read_signature(model, served.signature)
    if taken := sorted({"index", *given} & set(served.copy_columns)):
        raise UsageError(
            f"copy_columns: the answers have a field {taken[0]!r} of their own"
        )
    chosen = served.chosen_columns()
    if unknown := sorted(chosen.keys() - ranks.keys()):
        raise UsageError(
            f"columns: {served.signature} takes {', '.join(ranks)}, received "
            f"{', '.join(unknown)}"
        )
    columns = {name: chosen.get(name, name) for name in ranks}
    return Reading(columns, ranks, tuple(served.copy_columns))


class Signature(NamedTuple):
    """What a signature takes and gives.

    Attributes:
        ranks: dict. Rank of the tensor by input: 1 for a text per row, 2 for a list.
        outputs: list of str. Names of the outputs.
    """

    ranks: dict[str, int]
    outputs: list[str]


def digest(path: str | os.PathLike) -> str:
    """Returns a digest of the graph and the weights of a SavedModel."""
    found = hashlib.sha256()
    for name in (_MODEL_FILE, _INDEX_FILE):
        file = files.join(path, name)
        if name == _MODEL_FILE or files.exists(file):
            found.update(files.read_bytes(file))
    return found.hexdigest()


def read_signature(path: str | os.PathLike, signature: str) -> Signature:
    """Reads what a signature takes and gives, without loading the model.

    Raises:
        DataError: If the folder does not contain a SavedModel.
        UsageError: If it has no such signature, or one that takes other than strings.
    """
    from tensorflow.core.framework import types_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    file = files.join(path, _MODEL_FILE)
    data = files.read_bytes(file)
    try:
        (graph,) = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    except Exception as error:  # The parser's error has no public name.
        raise DataError(f"{file}: not a SavedModel: {error}") from None
    # Those with `__` are TensorFlow's own.
    known = sorted(name for name in graph.signature_def if not name.startswith("__"))
    if signature not in known:
        raise UsageError(
            f"signature: expected one of {', '.join(known)}, received {signature!r}"
        )
    found = graph.signature_def[signature]
    inputs = sorted(found.inputs.items())
    for name, info in inputs:
        if info.dtype != types_pb2.DT_STRING:
            kind = types_pb2.DataType.Name(info.dtype)
            raise UsageError(
                f"signature: {signature} takes {name} of type {kind}; expected one "
                "that takes only texts"
            )
    ranks = {name: len(info.tensor_shape.dim) for name, info in inputs}
    return Signature(ranks, sorted(found.outputs))


class ServedModel:
    """A signature of a SavedModel, loaded into this process.

    TensorFlow computes each operation with one thread if it has not started yet: with
    more, sums can be split differently on a machine with another number of cores.

    Args:
        path: str. Folder of the SavedModel. It is a program: see docs/serving.md.
        signature: str. Name of the signature.
        num_threads: int. How many calls are made at the same time.
    """

    def __init__(self, path: str, signature: str, num_threads: int = 1):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (registers the operations)

        limit_tensorflow(num_threads)
        self._tf = tf
        self._num_threads = num_threads
        # Keeps the variables alive.
        self._loaded = tf.saved_model.load(streams.literal(path))
        self._ask = alone_at_first(self._loaded.signatures[signature])

    def answer(
        self, inputs: Mapping[str, Sequence], batch_size: int
    ) -> list[dict[str, Any]]:
        """Returns the outputs for each row, as values that JSON has.

        Rows are batched by length. The batches depend only on the arguments, so equal
        arguments give equal answers to the last digit.

        Args:
            inputs: Mapping. Texts, or lists of texts, by input.
            batch_size: int. Maximum number of rows in a batch.
        """
        sizes = [sum(map(_length, row)) for row in zip(*inputs.values(), strict=True)]
        order = sorted(range(len(sizes)), key=lambda k: (sizes[k], k))
        answers: list[dict[str, Any]] = [{} for _ in sizes]

        def compute(begin: int) -> None:
            rows = order[begin : begin + batch_size]
            chosen = {name: [v[k] for k in rows] for name, v in inputs.items()}
            tensors = {k: self._tf.constant(_filled(v)) for k, v in chosen.items()}
            found = {k: v.numpy() for k, v in self._ask(**tensors).items()}
            for at, k in enumerate(rows):
                texts = [values[at] for values in chosen.values()]
                answers[k] = _row(found, at, texts)

        list(in_threads(compute, range(0, len(order), batch_size), self._num_threads))
        return answers


def _length(value: str | list[str]) -> int:
    return len(value) if isinstance(value, str) else sum(map(len, value))


def _filled(values: list) -> np.ndarray:
    """Returns texts [B], or lists of texts [B, K] with empty ones at their ends."""
    if isinstance(values[0], str):
        return np.array([text.encode() for text in values], object)
    filled = np.full((len(values), max(map(len, values))), b"", object)
    for row, texts in zip(filled, values, strict=True):
        row[: len(texts)] = [text.encode() for text in texts]
    return filled


def _row(outputs: Mapping[str, np.ndarray], at: int, inputs: list) -> dict[str, Any]:
    """Returns the outputs of one row, without what fills it up in its batch."""
    counts = [int(v[at]) for name, v in outputs.items() if name in _COUNTS]
    counts += [len(value) for value in inputs if isinstance(value, list)]
    end = max(counts[0], 0) if counts else None
    return {
        name: _plain(value[at][:end] if value.ndim > 1 else value[at])
        for name, value in sorted(outputs.items())
    }


def _plain(value: Any) -> Any:
    """Returns a value of an output as JSON has it."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.floating):
        # The shortest number that is read back as the same float32.
        number = float(str(value))
        return number if math.isfinite(number) else None
    return value.item() if isinstance(value, np.generic) else value
