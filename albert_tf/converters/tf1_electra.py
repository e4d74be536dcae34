"""Names and sizes in TensorFlow 1 checkpoints of google-research/electra.

One checkpoint of pretraining holds two models. The discriminator is `electra/…` with
`discriminator_predictions/…`. The generator is `generator/…` with
`generator_predictions/…`; it uses the discriminator's embeddings unless they were
trained untied, and the discriminator's encoder if one net was trained for both. There
is no file with the sizes: the shapes show all but the number of heads, which the
original derives from `hidden_size`.
"""

import re
from collections.abc import Mapping

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.converters.table import (
    BERT_BLOCK,
    PROJECTION,
    TABLES,
    Names,
    Row,
    check_layers,
    read_checkpoint,
    rename,
    rows_of,
)
from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import files
from albert_tf.storage.folders import FolderWriter

FAMILY = "electra"
_MAIN, _GENERATOR = "electra", "generator"
_MASKED_LM, _DISCRIMINATOR = "masked_lm", "discriminator"
_HEAD_SIZE = 64
# The exact function, unlike BERT's.
ACTIVATIONS = ("gelu",)
_EMBEDDINGS = "backbone/embeddings/"
# Layers that fine-tuning adds for each task.
_TASKS = re.compile(r"task_specific/([^/]+)/")
_KERNEL = ("/kernel", "/bias")
_NORM = ("/gamma", "/beta")


def matches(theirs: Mapping[str, Tensor]) -> bool:
    """Returns whether the tensors of a checkpoint belong to an ELECTRA."""
    return f"{_MAIN}/embeddings/word_embeddings" in theirs


def name_table(scope: str, embeddings: str) -> Names:
    """Returns the names of a net and of both heads.

    The scopes of the encoder and of the embeddings are `"electra"` or `"generator"`.
    """
    return Names(
        tables=f"{embeddings}/embeddings/{{}}",
        scope=f"{scope}/encoder/layer_{{group}}",
        layers={
            "backbone/embeddings/layer_norm": f"{embeddings}/embeddings/LayerNorm",
            PROJECTION: f"{scope}/embeddings_project",
            **BERT_BLOCK,
            "mlm_head/dense": "generator_predictions/dense",
            "mlm_head/layer_norm": "generator_predictions/LayerNorm",
            "discriminator/dense": "discriminator_predictions/dense",
            "discriminator/prediction": "discriminator_predictions/dense_1",
        },
    )


def read(
    format: str,
    path: str,
    folder: str,
    theirs: Mapping[str, Tensor],
    config: AlbertConfig | None,
    no_weights: re.Pattern,
) -> Checkpoint:
    """Returns the discriminator of a checkpoint, with its generator if it has one.

    The config belongs to the net whose sizes it has. Raises `DataError` if the sizes do
    not follow from the shapes, and `UsageError` if the config belongs to another model.
    """
    heads = {
        head: {n for n in theirs if n.startswith(stem) and not no_weights.search(n)}
        for head, stem in (
            (_DISCRIMINATOR, "discriminator_predictions/"),
            (_MASKED_LM, "generator_predictions/"),
        )
    }
    scope = _first_scope(theirs, "encoder/layer_0/output/dense/kernel")
    tables = _first_scope(theirs, "embeddings/word_embeddings")
    has_both = bool(heads[_MASKED_LM]) and (
        scope == _GENERATOR or bool(heads[_DISCRIMINATOR])
    )
    places = {_MAIN: (_MAIN, _MAIN)}
    if has_both:
        places[_GENERATOR] = (scope, tables)
    sizes = {net: _sizes(path, theirs, *place) for net, place in places.items()}
    configs = {
        net: _find_config(path, folder, net, own, config) for net, own in sizes.items()
    }
    if config is not None and config not in configs.values():
        raise UsageError(f"{path}: config: {_misfit(config, sizes[_MAIN])}")
    # Everything belongs to the discriminator except what only the generator reads.
    left, twin = dict(theirs), None
    if has_both:
        rows = _rows(configs[_GENERATOR], scope, tables)
        rows = [row for row in rows if not row.ours.startswith(_DISCRIMINATOR)]
        own = {row.theirs: theirs[row.theirs] for row in rows if row.theirs in theirs}
        args = (configs[_GENERATOR], _MASKED_LM, rows, own, no_weights)
        twin = read_checkpoint(format, path, *args)
        shared = {row.theirs for row in _rows(configs[_MAIN], _MAIN, _MAIN)}
        for name in own.keys() & (heads[_MASKED_LM] | (own.keys() - shared)):
            del left[name]
    rows = _rows(configs[_MAIN], _MAIN, _MAIN)
    args = (configs[_MAIN], None, rows, left, no_weights)
    checkpoint = read_checkpoint(format, path, *args)
    checkpoint.generator = twin
    _leave_out_tasks(checkpoint)
    return checkpoint


def _first_scope(theirs: Mapping[str, Tensor], name: str) -> str:
    return _GENERATOR if f"{_GENERATOR}/{name}" in theirs else _MAIN


def _rows(config: AlbertConfig, scope: str, embeddings: str) -> list[Row]:
    names = name_table(scope, embeddings)
    layers = names.layers_of(config)
    if not config.has_embedding_projection:
        del layers[PROJECTION]
    bias = Row("mlm_head/output_bias", "generator_predictions/output_bias")
    return [*names.table_rows(), *rows_of(layers, _KERNEL, _NORM), bias]


def _sizes(
    path: str, theirs: Mapping[str, Tensor], scope: str, embeddings: str
) -> dict[str, int]:
    """Returns the sizes of a net by the fields of `AlbertConfig`."""
    block = re.compile(rf"{scope}/encoder/layer_(\d{{1,6}})/")
    numbers = [int(m[1]) for m in map(block.match, theirs) if m]
    tables = [f"{embeddings}/embeddings/{name}" for name in TABLES]
    kernel = f"{scope}/encoder/layer_0/intermediate/dense/kernel"
    shapes = []
    for name in (*tables, kernel):
        shape = theirs[name].shape if name in theirs else ()
        demand = f"{path}: the sizes follow from {name}, which must have two dimensions"
        require(len(shape) == 2, demand, shape, error=DataError)
        shapes.append(shape)
    return {
        "vocab_size": shapes[0][0],
        "embedding_size": shapes[0][1],
        "max_position_embeddings": shapes[1][0],
        "type_vocab_size": shapes[2][0],
        "hidden_size": shapes[3][0],
        "intermediate_size": shapes[3][1],
        "num_hidden_layers": max(numbers) + 1,
    }


def _find_config(
    path: str, folder: str, net: str, sizes: dict[str, int], given: AlbertConfig | None
) -> AlbertConfig:
    """Returns a net's config: `given` if it fits, the one we wrote, or by shapes."""
    if given is not None and not _misfit(given, sizes):
        return given
    where = files.join(folder, _config_name(net))
    if files.exists(where):
        stored = AlbertConfig.from_json(where)
        if misfit := _misfit(stored, sizes):
            raise DataError(f"{where}: {misfit}")
        return stored
    heads = max(1, sizes["hidden_size"] // _HEAD_SIZE)
    try:
        preset = {"num_attention_heads": heads, "num_hidden_groups": 1, **sizes}
        return AlbertConfig.from_preset("electra_base", **preset)
    except ValueError as e:
        raise DataError(f"{path}: {e}; a config is required") from None


def _config_name(net: str) -> str:
    return f"{net}_config.json"


def _misfit(config: AlbertConfig, sizes: dict[str, int]) -> str:
    """Returns the contradiction between a config and the tensors; empty if they fit."""
    plain = config.replace(sharing="none", inner_group_num=1)
    if config.layer_table() != plain.layer_table():
        return f"sharing must be 'none', received {config.sharing!r}"
    for name, value in {"family": FAMILY, **sizes}.items():
        if (value_here := getattr(config, name)) != value:
            return f"{name} must be {value!r} by the tensors, received {value_here!r}"
    return ""


def _leave_out_tasks(checkpoint: Checkpoint) -> None:
    """Moves the layers of tasks to the dropped names, and adds a note."""
    matches_of = {name: _TASKS.match(name) for name in checkpoint.unknown}
    tasks = sorted({match[1] for match in matches_of.values() if match})
    if tasks:
        checkpoint.unknown = [name for name in matches_of if not matches_of[name]]
        checkpoint.dropped += [name for name in matches_of if matches_of[name]]
        checkpoint.notes.append(
            f"{checkpoint.format}: fine-tuned on {', '.join(tasks)}; the encoder is "
            "read, the layers of the task are left out, as the heads here have others"
        )


def tensors_of(checkpoint: Checkpoint, format: str) -> dict[str, Tensor]:
    """Returns the tensors of a model, and of its generator, by the original's names.

    Raises `UsageError` if the original cannot express a net.
    """
    heads = (None, _DISCRIMINATOR, _MASKED_LM)
    need = (
        f"{format}: the original's heads for tasks have other layers; of an ELECTRA it "
        "stores a discriminator, a masked_lm and the encoder (--head=none)"
    )
    require(checkpoint.head in heads, need, checkpoint.head)
    result = _renamed(checkpoint, format, _MAIN, _MAIN)
    _note_heads(checkpoint, _MAIN, checkpoint.config, format)
    twin = checkpoint.generator
    if twin is None:
        return result
    need = f"{format}: the generator's hidden_act must be {ACTIVATIONS[0]!r}"
    has_act = twin.config.hidden_act in ACTIVATIONS
    require(has_act, need, twin.config.hidden_act)
    need = f"{format}: both nets read one vocabulary; the generator's vocab_size must "
    need += f"be {checkpoint.config.vocab_size}"
    same_size = twin.config.vocab_size == checkpoint.config.vocab_size
    require(same_size, need, twin.config.vocab_size)
    scope = _MAIN if _are_equal(checkpoint, twin, "backbone/") else _GENERATOR
    tables = _MAIN if _are_equal(checkpoint, twin, _EMBEDDINGS) else _GENERATOR
    if tables == _GENERATOR and twin.config.has_embedding_projection:
        E, D = twin.config.embedding_size, twin.config.hidden_size
        raise UsageError(
            f"{format}: a generator with embeddings of its own must have "
            f"embedding_size equal to hidden_size, received {E} and {D}; "
            "--head=discriminator and --head=masked_lm write each alone"
        )
    if scope == _GENERATOR:
        _note_heads(checkpoint, _GENERATOR, twin.config, format)
    return {**_renamed(twin, format, scope, tables), **result}


def _renamed(
    checkpoint: Checkpoint, format: str, scope: str, tables: str
) -> dict[str, Tensor]:
    config = checkpoint.config
    check_layers(config, name_table(scope, tables), format, "ELECTRA")
    return rename(_rows(config, scope, tables), checkpoint.tensors, format)


def _note_heads(
    checkpoint: Checkpoint, net: str, config: AlbertConfig, format: str
) -> None:
    """Adds a note if the original would derive another number of heads."""
    heads, D = max(1, config.hidden_size // _HEAD_SIZE), config.hidden_size
    if config.num_attention_heads != heads:
        checkpoint.notes.append(
            f"{format}: for hidden_size={D} the original computes with {heads} heads "
            f"by default, not {config.num_attention_heads}, which only "
            f"{_config_name(net)} records"
        )


def _are_equal(first: Checkpoint, second: Checkpoint, stem: str) -> bool:
    """Returns whether the tensors with a prefix are equal bit for bit."""
    names = {name for name in first.tensors if name.startswith(stem)}
    others = {name for name in second.tensors if name.startswith(stem)}
    return names == others and all(
        first.tensors[name].shape == second.tensors[name].shape
        and np.array_equal(first.tensors[name].read(), second.tensors[name].read())
        for name in sorted(names)
    )


def write_configs(checkpoint: Checkpoint, out: FolderWriter) -> None:
    """Writes sizes that the shapes do not show, such as heads, for this package.

    The original has no such files, and ignores them.
    """
    nets = zip((_MAIN, _GENERATOR), checkpoint.nets.values(), strict=False)
    for net, one in nets:
        out.write_json(_config_name(net), one.config.to_dict())
