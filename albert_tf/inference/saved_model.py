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
from typing import Any

import numpy as np

from albert_tf.errors import DataError, require
from albert_tf.heads import TOKENS
from albert_tf.inference.files import Progress, answer_file
from albert_tf.inference.formats import Output, Parts
from albert_tf.inference.forward import alone_at_first, limit_tensorflow
from albert_tf.inference.settings import BulkSettings, ServedSettings
from albert_tf.jobs.folder import Part, Workplace, check_output, split_evenly
from albert_tf.jobs.run import Job, OnRows
from albert_tf.storage import files, hubs, streams
from albert_tf.tables.columns import Columns
from albert_tf.tables.reader import ColumnReader
from albert_tf.tables.text_stream import TextStream
from albert_tf.tasks.outputs import in_threads, sorted_batches
from albert_tf.tasks.task import Portions

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
) -> Progress:
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
    output = Shards(output_file, num_shards=served.num_shards)
    check_output(f"{output.path}.parts", output.existing(), overwrite)
    paths = find_files(input_file)
    columns, ranks = _choose_columns(model, served)
    rows = open_rows(paths, columns, ranks, served.copy_columns)
    settings = {
        "command": "predict",
        "model": digest(model),
        "input_file": paths,
        "columns": columns,
        "ranks": ranks,
        "copied": served.copy_columns,
        "signature": served.signature,
        "batch_size": batch_size,
    }
    work = ServedWork(model, served.signature, batch_size)
    return answer_file(work, rows, output, settings, bulk, overwrite)


@dataclasses.dataclass(frozen=True)
class ServedWork:
    """Answers of a SavedModel; see `run.Work`."""

    model: str
    signature: str
    batch_size: int

    def open(self, num_threads: int) -> Callable[[Job, OnRows], Part]:
        model = ServedModel(self.model, self.signature, num_threads)

        def compute(job: Job, on_rows: OnRows) -> Part:
            lines = []
            for k, answer in enumerate(model.answer(job.rows.inputs, self.batch_size)):
                copied = {name: v[k] for name, v in job.rows.copied.items()}
                row = {"index": job.first + k, **copied, **answer}
                lines.append(files.to_json(row, ensure_ascii=False) + "\n")
            on_rows(len(lines))
            return Part("".join(lines).encode(), {"rows": len(lines)})

        return compute


@dataclasses.dataclass(frozen=True)
class Shards(Output):
    """Files of JSON lines, equal numbers of rows in each, or a single one.

    Attributes:
        path: str. Prefix of the files, or one file that ends in `.jsonl`.
        num_shards: int or None. Default: one per 100,000 rows.
    """

    answers: str = TOKENS
    num_shards: int | None = None

    def __post_init__(self):
        rule = "output_file: must name files or a prefix"
        require(os.path.basename(self.path), rule, self.path)
        fits = self.ending != "jsonl" or self.num_shards in (None, 1)
        rule = f"num_shards: {self.num_shards}, but output_file names one file"
        require(fits, rule)

    def existing(self) -> list[str]:
        if self.ending == "jsonl":
            return super().existing()
        number = "[0-9]" * 5
        pattern = f"{streams.escape(self.path)}-{number}-of-{number}.jsonl"
        return streams.glob(pattern)

    def paths(self, rows: int = 0) -> list[str]:
        if self.ending == "jsonl":
            return [self.path]
        count = self.num_shards or math.ceil(rows / _ROWS_PER_FILE)
        require(count <= rows, f"num_shards: {count} files, but only {rows} texts")
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
                for line in itertools.islice(lines, end - begin):
                    file.write(line)
        for new, path in zip(written, paths, strict=True):
            files.rename(new, path)
        for path in set(self.existing()) - set(paths):
            files.remove(path)
        return paths


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Neighbouring rows of a file: lists of values by input and by column."""

    inputs: dict[str, list]
    copied: dict[str, list]

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


def open_rows(
    paths: Sequence[str],
    columns: Mapping[str, str],
    ranks: Mapping[str, int],
    copied: Sequence[str] = (),
) -> Portions:
    """Returns the rows of files in portions, each from a single file.

    Args:
        paths: sequence of str.
        columns: dict. Column by input of the model.
        ranks: dict. Rank of the tensor by input: 1 for a text per row, 2 for a list.
        copied: sequence of str. Columns that are copied to the answers.

    Raises:
        UsageError: If a file of lines cannot give what the model takes.
        DataError: When reading, if a file cannot be read, or a value is not a text; the
            message names the line. If there are no rows.
    """
    for name in map(os.path.basename, filter(_is_plain_text, paths)):
        require(
            len(columns) == 1 and 2 not in ranks.values(),
            f"input_file: {name} has one text per line, but the signature takes "
            f"{', '.join(columns)}; use .jsonl, .parquet, .csv or .tsv",
        )
        rule = f"copy_columns: {name} has no columns, received {', '.join(copied)}"
        require(not copied, rule)
    done = 0

    def portions(size: int | None) -> Iterator[RowBlock]:
        nonlocal done
        is_empty = True
        for path in paths:
            for block in _blocks(path, size, columns, ranks, copied):
                is_empty = False
                yield block
            done += 1
        rule = f"input_file: {', '.join(paths)}: contains no text"
        require(not is_empty, rule, error=DataError)

    return Portions(portions, lambda: done / len(paths))


def _blocks(path: str, size, columns, ranks, copied) -> Iterator[RowBlock]:
    """Yields the rows of one file; see `open_rows`."""
    if _is_plain_text(path):
        (name,), lines = columns, TextStream(path).lines()
        while block := list(itertools.islice(lines, size)):
            yield RowBlock({name: block}, {})
        return
    wanted = list(dict.fromkeys([*columns.values(), *copied]))
    exact = {*copied} - {*columns.values()}
    for table in ColumnReader(path, wanted, exact=exact).portions(size):
        inputs = {k: _checked(table, v, ranks[k]) for k, v in columns.items()}
        yield RowBlock(inputs, {column: table.values[column] for column in copied})


def _checked(table: Columns, column: str, rank: int) -> list:
    """Returns the values of a column if all are texts, or lists of texts."""
    for row, value in enumerate(table.values[column]):
        texts = value if rank == 2 and isinstance(value, list) else [value]
        is_list = isinstance(value, list) == (rank == 2)
        if not is_list or not all(isinstance(text, str) for text in texts):
            expected = "a text" if rank == 1 else "a list of texts"
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


def _choose_columns(
    model: str, served: ServedSettings
) -> tuple[dict[str, str], dict[str, int]]:
    """Returns the column and the rank of each input of the signature, checked."""
    ranks, given = read_signature(model, served.signature)
    for name in served.copy_columns:
        rule = f"copy_columns: the answers have a field {name!r} of their own"
        require(name not in ("index", *given), rule)
    chosen = served.chosen_columns()
    unknown = ", ".join(sorted(chosen.keys() - ranks.keys()))
    rule = f"columns: {served.signature} takes {', '.join(ranks)}, received {unknown}"
    require(not unknown, rule)
    return {name: chosen.get(name, name) for name in ranks}, ranks


def digest(path: str | os.PathLike) -> str:
    """Returns a digest of the graph and the weights of a SavedModel."""
    found = hashlib.sha256()
    for name in (_MODEL_FILE, _INDEX_FILE):
        file = files.join(path, name)
        if name == _MODEL_FILE or files.exists(file):
            found.update(files.read_bytes(file))
    return found.hexdigest()


def read_signature(
    path: str | os.PathLike, signature: str
) -> tuple[dict[str, int], list[str]]:
    """Reads what a signature takes and gives, without loading the model.

    Returns:
        The rank of the tensor by input, 1 for a text per row, 2 for a list; and the
        names of the outputs.

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
    rule = f"signature: expected one of {', '.join(known)}"
    require(signature in known, rule, signature)
    found = graph.signature_def[signature]
    inputs = sorted(found.inputs.items())
    for name, info in inputs:
        kind = types_pb2.DataType.Name(info.dtype)
        rule = f"signature: {signature} takes {name} of type {kind}; expected one that "
        require(info.dtype == types_pb2.DT_STRING, f"{rule}takes only texts")
    ranks = {name: len(info.tensor_shape.dim) for name, info in inputs}
    return ranks, sorted(found.outputs)


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
        batches = sorted_batches(np.array(sizes, int), batch_size)
        answers: list[dict[str, Any]] = [{} for _ in sizes]

        def compute(rows: np.ndarray) -> None:
            chosen = {name: [v[k] for k in rows] for name, v in inputs.items()}
            tensors = {k: self._tf.constant(_filled(v)) for k, v in chosen.items()}
            found = {k: v.numpy() for k, v in self._ask(**tensors).items()}
            for at, k in enumerate(rows):
                texts = [values[at] for values in chosen.values()]
                answers[k] = _row(found, at, texts)

        list(in_threads(compute, batches, self._num_threads))
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
    counts = [int(outputs[name][at]) for name in _COUNTS & outputs.keys()]
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
