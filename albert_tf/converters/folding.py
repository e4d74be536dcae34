"""Folds an encoder whose layers share nothing into one whose layers share a block.

The layers of a group get their mean as shared weights, or one of them. What is left of
each kernel, `W - W_shared`, becomes the layer's own `A B` by its truncated singular
value decomposition; its bias stays exact, and by default layer norms do. With the full
rank, the result computes what the source does.

A table of tokens in fewer dimensions is the decomposition of the tables around the
mean of each row, which their layer norm subtracts in any case. It is written in
coordinates whose mean is 0 and whose variance is the old one, so that the layer norm
divides by the same number, and only what lies outside of the subspace is lost.
"""

import collections
import dataclasses
import functools
import math
import os
import re
from collections.abc import Sequence

import numpy as np

from albert_tf import features
from albert_tf.config import DEPTH_MATRICES, AlbertConfig, LayerWeights
from albert_tf.converters import detect, own_format
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.converters.convert import select
from albert_tf.converters.fold_settings import FoldSettings
from albert_tf.converters.table import DENSE, ENCODER, KERNELS, OWN, PROJECTION, TABLES
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import find
from albert_tf.storage import folders
from albert_tf.text import inputs

_IN_BLOCK = re.compile(rf"{ENCODER}(attention|ffn)(_layer_norm)?_\d+/.*")
# The kernels that layers share, by the sharing.
_SHARED = {"attention": DEPTH_MATRICES[:4], "ffn": DEPTH_MATRICES[4:]}
_EMBEDDINGS = "backbone/embeddings/"
# Texts whose states are compared at a time.
_ROWS = 8


@dataclasses.dataclass
class Report:
    """A report on what folding a model has lost.

    Args:
        source_parameters, parameters: int. Numbers of weights of both models.
        parts: dict. For every layer, and for smaller embeddings: `left_out`, the
            Frobenius norm of what is missing in the kernels or the table of tokens,
            relative to their own; and with texts `cosine`, of the states after it in
            both models, as the mean over the tokens.
        texts: int. Number of texts compared.
        notes: list of str. Remarks for the user.
    """

    source: str
    target: str
    source_parameters: int
    parameters: int
    parts: dict[str, dict[str, float]]
    texts: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def write(self, out: folders.FolderWriter) -> None:
        """Writes `fold.json` and `fold.txt`."""
        out.write_json("fold.json", dataclasses.asdict(self))
        out.write("fold.txt", (self.to_text() + "\n").encode())

    def to_text(self) -> str:
        """Returns the report as readable text."""
        lines = [
            f"{self.source} -> {self.target}",
            f"parameters: {self.source_parameters:,} -> {self.parameters:,}",
            *(f"note: {note}" for note in self.notes),
            f"{'':<12}{'left out':>10}{'cosine':>10}",
        ]
        for part, row in self.parts.items():
            cells = (f"{row[c]:.4f}" if c in row else "-" for c in _COLUMNS)
            lines.append(f"{part:<12}" + "".join(f"{cell:>10}" for cell in cells))
        return "\n".join(lines)


_COLUMNS = ("left_out", "cosine")


def fold_checkpoint(
    source: str | os.PathLike,
    target: str | os.PathLike,
    settings: FoldSettings,
    *,
    head: str | None = "auto",
    texts: Sequence[str] = (),
    overwrite: bool = False,
) -> Report:
    """Folds a model into one whose layers share weights, in this package's format.

    The source is read tensor by tensor, and the states of both are compared on the
    texts. Raises `UsageError` if a setting does not fit it, and `DataError` if there is
    nothing to fold. Returns the `Report`, also written next to the weights as
    `fold.txt` and `fold.json`.
    """
    with detect.open_checkpoint(source) as opened:
        opened.check_unknown()
        checkpoint = select(opened, head)
        config = folded_config(checkpoint, settings)
        if texts:
            checkpoint.make_tokenizer()
        with folders.writing(target, overwrite) as out:
            folded, report = fold(checkpoint, config, settings.shared_layer)
            report.source = opened.origin or opened.path
            report.target = os.fspath(target)
            report.notes = [*opened.notes, *report.notes]
            _run(report, checkpoint, folded, texts)
            own_format.write(folded, out)
            report.write(out)
    return report


def folded_config(checkpoint: Checkpoint, settings: FoldSettings) -> AlbertConfig:
    """Returns the config of a folded model.

    Raises `UsageError` if a setting does not fit, and `DataError` if nothing is folded.
    """
    old, changes = checkpoint.config, dataclasses.asdict(settings)
    path, L = checkpoint.path, old.num_hidden_layers
    each, rest = divmod(L, settings.num_hidden_groups)
    need = f"--num_hidden_groups must divide the {L} layers of {path}"
    require(not rest, need, settings.num_hidden_groups)
    layer = changes.pop("shared_layer") or 1
    need = f"--shared_layer must be at most {each}, the layers of a group"
    require(layer <= each, need, layer)
    most, size = old.embedding_size, settings.embedding_size or old.embedding_size
    need = f"--embedding_size must be at most {most}, that of {path}"
    require(size <= most, need, size)
    usual = _SHARED.get(settings.sharing) if settings.depth_rank else None
    needless = {*settings.depth_matrices} - {*(usual or settings.depth_matrices)}
    need = f"--depth_matrices must be kernels that --sharing={settings.sharing} shares"
    require(not needless, need, *sorted(needless))
    changes["depth_matrices"] = settings.depth_matrices or usual
    changes["embedding_size"], changes["group_rule"] = size, "integer"
    if size < most:
        is_square = size == old.hidden_size
        changes["embedding_projection"] = "always" if is_square else "auto"
    try:
        config = old.replace(**changes)
    except ValueError as e:
        raise UsageError(f"--{e}") from None
    merged = (
        len({old.layer_table()[row][column] for row in rows}) > 1
        for column in (0, 2)
        for rows in _rows_of(config, column).values()
    )
    need = f"{path}: its layers have weights of their own, next to those they share"
    require(not old.has_depth_weights, need, error=DataError)
    need = f"{path}: nothing to fold: no layers would share weights that differ now, "
    need += f"with sharing={old.sharing} there, --sharing={config.sharing} and "
    need += f"--num_hidden_groups={settings.num_hidden_groups}"
    require(any(merged), need, error=DataError)
    return config


def _rows_of(config: AlbertConfig, column: int) -> dict[int, list[int]]:
    """Returns the rows of the table that read each weight of one of its columns."""
    rows = collections.defaultdict(list)
    for row, weights in enumerate(config.layer_table()):
        rows[weights[column]].append(row)
    return rows


def fold(
    checkpoint: Checkpoint, config: AlbertConfig, shared_layer: int | None = None
) -> tuple[Checkpoint, Report]:
    """Returns the checkpoint of an encoder by `folded_config`, and what is lost.

    Weights that it computes are in memory, all others are read later.
    """
    ours, table = checkpoint.tensors, checkpoint.config.layer_table()
    tensors = {name: ours[name] for name in ours if not _IN_BLOCK.fullmatch(name)}
    for column, part in enumerate(LayerWeights._fields):
        for place, rows in _rows_of(config, column).items():
            if shared_layer and len(rows) > 1:
                rows = rows[shared_layer - 1 : shared_layer]
            stems = [f"{ENCODER}{part}_{table[row][column]}/" for row in rows]
            for name in [name for name in ours if name.startswith(stems[0])]:
                rest = name.removeprefix(stems[0])
                shape = ours[name].shape
                several = [checkpoint.need(f"{stem}{rest}", shape) for stem in stems]
                tensors[f"{ENCODER}{part}_{place}/{rest}"] = _mean(several)
    parts = _add_own(checkpoint, config, tensors)
    result = dataclasses.replace(
        checkpoint, config=config, tensors=tensors, generator=None
    )
    notes = [] if checkpoint.generator is None else ["the generator is left out"]
    old_size, size = checkpoint.config.embedding_size, config.embedding_size
    if size < old_size:
        left = _shrink_embeddings(checkpoint, size, tensors)
        parts = {"embeddings": {"left_out": left}, **parts}
        notes.append(
            f"embedding_size={size}: the layer norm of the embeddings stands before "
            "their projection and scales what is left of each vector to the old "
            "length; training heals it"
        )
        if (row := find(result.head)).has_masked_lm:
            result = result.without_head()
            notes.append(
                f"the head {row.name} is left out: its vectors have {old_size}"
            )
    counts = (
        sum(math.prod(tensor.shape) for tensor in one.tensors.values())
        for one in (checkpoint, result)
    )
    return result, Report(checkpoint.path, "", *counts, parts, notes=notes)


def _mean(tensors: list[Tensor]) -> Tensor:
    first = tensors[0]
    if all(one is first for one in tensors):
        return first
    total = functools.reduce(np.add, (one.read().astype(np.float64) for one in tensors))
    return Tensor.of(first.name, (total / len(tensors)).astype(np.float32))


def _add_own(
    checkpoint: Checkpoint, config: AlbertConfig, tensors: dict[str, Tensor]
) -> dict[str, dict[str, float]]:
    """Adds what each layer has of its own, and returns their rows of the report."""
    parts, every = {}, config.replace(depth_rank=1, depth_matrices=None)
    rows = zip(checkpoint.config.layer_table(), config.layer_table(), strict=True)
    for number, (old, new) in enumerate(rows):
        lost = total = 0.0
        for name, shape in every.depth_shapes().items():
            layer = ENCODER + KERNELS[name]
            column = LayerWeights._fields.index(KERNELS[name].partition("_")[0])
            values = []
            for one, size in zip(DENSE, (shape, shape[1:]), strict=True):
                own = checkpoint.need(f"{layer.format(old[column])}/{one}", size).read()
                shared = tensors[f"{layer.format(new[column])}/{one}"].read()
                values += [own, own - shared.astype(np.float64)]
            kernel, rest, _, bias = values
            need = f"{checkpoint.path}: {name} of layer {number + 1} must be finite"
            require(np.isfinite(rest).all(), need, error=DataError)
            if name in config.depth_shapes():
                a, b = _factors(rest, config.depth_rank, config.initializer_range)
                for kind, value in (("a", a), ("b", b), ("bias", bias)):
                    full = f"{OWN}{number}/{name}_{kind}"
                    tensors[full] = Tensor.of(full, value.astype(np.float32))
                rest = rest - a @ b
            lost += np.square(rest).sum()
            total += np.square(kernel, dtype=np.float64).sum()
        parts[f"layer {number + 1}"] = {"left_out": _share(lost, total)}
    return parts


def _share(lost: float, total: float) -> float:
    """Returns the norm of a part, relative to the whole, from both squares."""
    return math.sqrt(max(lost, 0.0) / max(total, np.finfo(float).tiny))


def _factors(
    matrix: np.ndarray, rank: int, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns `A` and `B`, whose product is the nearest matrix of a rank."""
    # Both have the square root of a singular value as their norm, but A at least
    # `least`: where both are 0, training would move neither.
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    scale = np.maximum(np.sqrt(values[:rank]), least)
    return left[:, :rank] * scale, (values[:rank] / scale)[:, None] * right[:rank]


def _shrink_embeddings(
    checkpoint: Checkpoint, size: int, tensors: dict[str, Tensor]
) -> float:
    """Replaces tables, layer norm and projection, and returns the relative error."""
    config = checkpoint.config
    E, D = config.embedding_size, config.hidden_size
    norm = {one: f"{_EMBEDDINGS}layer_norm/{one}" for one in ("gamma", "beta")}
    gamma, bias = (checkpoint.need(name, (E,)).read() for name in norm.values())
    kernel = np.diag(gamma.astype(np.float64))
    if config.has_embedding_projection:
        old = checkpoint.need(f"{PROJECTION}/kernel", (E, D)).read()
        added = checkpoint.need(f"{PROJECTION}/bias", (D,)).read()
        kernel, bias = kernel @ old, bias @ old + added
    tables = {}
    counts = config.vocab_size, config.num_positions, config.type_vocab_size
    for name, count in zip(TABLES, counts, strict=True):
        full = f"{_EMBEDDINGS}{name}"
        rows = checkpoint.need(full, (count, E)).read().astype(np.float64)
        tables[full] = rows - rows.mean(axis=1, keepdims=True)
    words = tables[f"{_EMBEDDINGS}{TABLES[0]}"]
    need = f"{checkpoint.path}: the table of tokens must be finite"
    require(np.isfinite(words).all(), need, error=DataError)
    values, vectors = np.linalg.eigh(words.T @ words)  # the last are the largest
    # Orthogonal coordinates whose mean is 0: all but the first, which is the mean.
    plane = np.linalg.qr(np.column_stack([np.ones(size), np.eye(size)[:, 1:]]))[0]
    turn = vectors[:, :-size:-1] @ plane[:, 1:].T * math.sqrt(size / E)
    new = {name: rows @ turn for name, rows in tables.items()}
    new |= {norm["gamma"]: np.ones(size), norm["beta"]: np.zeros(size)}
    new |= {f"{PROJECTION}/kernel": turn.T @ kernel * (E / size)}
    new |= {f"{PROJECTION}/bias": bias}
    for name, value in new.items():
        tensors[name] = Tensor.of(name, value.astype(np.float32))
    return _share(values[: E - size + 1].sum(), values.sum())


def _run(
    report: Report, source: Checkpoint, folded: Checkpoint, texts: Sequence[str]
) -> None:
    """Builds the folded model, and compares its states on texts if there are some."""
    # Keras is imported only after the checks that do not need it.
    import keras

    from albert_tf.converters.keras_model import build_model

    model = build_model(folded, folded.head)
    if not texts:
        return
    models = build_model(source.without_head(), None), getattr(model, "backbone", model)
    tokenizer, longest = source.make_tokenizer(), source.config.max_position_embeddings
    encoded = inputs.encode_texts(tokenizer, texts, max_seq_length=longest)
    sums, count = 0.0, 0
    for first in range(0, len(texts), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(texts)))
        length = int(encoded.lengths[rows].max())
        batch = inputs.padded_inputs(encoded, rows, length, tokenizer.pad_id)
        states = [
            keras.ops.stack(encoder(batch, output_hidden_states=True)["hidden_states"])
            for encoder in models
        ]
        one, other = map(keras.ops.convert_to_numpy, states)
        norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
        cosines = (one * other).sum(axis=-1) / np.maximum(norms, 1e-30)
        real = batch[features.PADDING_MASK]
        sums, count = sums + (cosines * real).sum(axis=(1, 2)), count + real.sum()
    report.texts, report.parts = len(texts), {"embeddings": {}} | report.parts
    for row, value in zip(report.parts.values(), sums / count, strict=True):
        row["cosine"] = float(value)
