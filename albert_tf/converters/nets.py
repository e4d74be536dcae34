"""Splits checkpoints of two nets that were trained together, and joins them again.

ELECTRA's generator and discriminator are stored as separate models. Only during their
training, and in the checkpoints of that run, they are one, a row of `heads.PAIRS`.
"""

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.config import generator_config
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.converters.equivalents import differences
from albert_tf.converters.table import OWN, TABLES
from albert_tf.errors import require
from albert_tf.heads import GENERATOR, MODEL, find
from albert_tf.storage import files

_PREFIX = f"{GENERATOR}/"
_EMBEDDINGS = "backbone/embeddings/"
# Parts that both nets may read.
_SHARED = (_EMBEDDINGS, "backbone/encoder/")
_TABLES = tuple(_EMBEDDINGS + name for name in TABLES)


def split(checkpoint: Checkpoint) -> dict[str, Checkpoint]:
    """Returns the models that a checkpoint is stored as, by the folder of a run.

    The fine-tuned one comes last; a head without a row in `heads.PAIRS` has only one.
    The checkpoint must stay open, because tensors are read later.
    """
    nets = find(checkpoint.head).nets
    if not nets:
        return {MODEL: checkpoint}
    options, config = checkpoint.head_options, checkpoint.config
    sizes = (options.get(name, 1.0) for name in ("generator_size", "generator_layers"))
    own = {k: v for k, v in checkpoint.tensors.items() if not k.startswith(_PREFIX)}
    inner = _inside(checkpoint.tensors)
    # A part without tensors of the generator is shared with the discriminator.
    for part in _SHARED:
        if not any(name.startswith(part) for name in inner):
            inner |= {k: v for k, v in own.items() if k.startswith(part)}
    small = generator_config(config, *sizes)
    # An encoder that both share may have more layers, with weights of their own.
    last = len(small.layer_table())
    inner = {k: v for k, v in inner.items() if _own_layer(k) < last}
    if options.get("embedding_sharing") == "disentangled":
        own |= {k: _combined(own[k], inner[k], np.add) for k in _TABLES}
    untrained = dict.fromkeys(checkpoint.untrained)
    parts = {
        GENERATOR: (small, inner, _inside(untrained)),
        MODEL: (config, own, untrained),
    }
    return {
        folder: dataclasses.replace(
            checkpoint,
            head=head,
            config=parts[folder][0],
            tensors=parts[folder][1],
            untrained=[name for name in parts[folder][2] if name in parts[folder][1]],
            head_options={},
            is_generator=folder == GENERATOR,
        )
        for folder, head in nets.items()
    }


def main_of(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the model of `split` that is fine-tuned, with its generator."""
    nets = split(checkpoint)
    nets[MODEL].generator = nets.get(GENERATOR, nets[MODEL].generator)
    return nets[MODEL]


def join(main: Checkpoint, pair: str, options: Mapping[str, Any]) -> Checkpoint:
    """Returns the initial state of the two nets of a pair.

    Tied embeddings and a shared encoder are the discriminator's. Disentangled
    embeddings leave the discriminator's effective ones unchanged. If `main` comes
    without a generator, the generator's own weights are missing. Raises `UsageError` if
    the generator has another vocabulary or other sizes than the options specify.
    """
    generator, own = main.generator, dict(main.tensors)
    inner: dict[str, Tensor] = {}
    if generator is not None:
        _check_generator(main, generator, options)
        inner = dict(generator.tensors)
    if options["embedding_sharing"] == "disentangled":
        if generator is None:
            inner = {k: v for k, v in own.items() if k.startswith(_EMBEDDINGS)}
        own |= {k: _combined(own[k], inner[k], np.subtract) for k in _TABLES}
    tensors = own | {_PREFIX + name: tensor for name, tensor in inner.items()}
    return main.for_other(pair, tensors, generator=None)


def digest(checkpoint: Checkpoint) -> str:
    """Returns a sha256 of the tensors of a checkpoint and of its generator."""
    first, generator = checkpoint.digest(), checkpoint.generator
    if generator is None:
        return first
    return hashlib.sha256(f"{first} {generator.digest()}".encode()).hexdigest()


def refuse_generator(checkpoint: Checkpoint) -> None:
    """Raises `UsageError` if a checkpoint is a generator, which is not fine-tuned.

    The files count as a generator if they say so, are in the folder that a generator is
    written to, or hold a masked LM of the family ELECTRA. An exception is the model of
    a run, which was trained on masked words alone.
    """
    folder = (checkpoint.folder or checkpoint.path).rstrip("/")
    above, name = os.path.split(os.path.abspath(folder))
    places = {MODEL: files.join(above, MODEL), "config.json": above}
    homes = [v for k, v in places.items() if files.exists(files.join(above, k))]
    is_there = name == GENERATOR and bool(homes)
    of_run = name != GENERATOR and files.exists(files.join(above, "run.json"))
    of_run = of_run or checkpoint.format == "pretraining_run"
    by_family = checkpoint.config.family == "electra" and not of_run
    is_one = checkpoint.is_generator or is_there or by_family
    where = f", {homes[0]}" if is_there else ""
    hint = "; of a model without one, convert_checkpoint --head=none writes the encoder"
    require(
        checkpoint.head != "masked_lm" or not is_one,
        f"{checkpoint.path}: is ELECTRA's generator, which is not fine-tuned; give "
        f"the discriminator{where or hint}",
    )


def _check_generator(
    main: Checkpoint, generator: Checkpoint, options: Mapping[str, Any]
) -> None:
    V, config = main.config.vocab_size, generator.config
    need = f"{main.path}: generator and discriminator must have one vocabulary, of {V}"
    require(config.vocab_size == V, need, config.vocab_size)
    sizes = [options[name] for name in ("generator_size", "generator_layers")]
    misfits = differences(config, generator_config(main.config, *sizes))
    require(
        not misfits,
        f"{main.path}: its generator differs from --generator_size={sizes[0]:g} and "
        f"--generator_layers={sizes[1]:g}, has {'; '.join(misfits.values())}; give its "
        f"folder {MODEL} to draw another generator",
    )


def _inside(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the generator's values, by their names inside the generator."""
    return {k[len(_PREFIX) :]: v for k, v in values.items() if k.startswith(_PREFIX)}


def _combined(one: Tensor, other: Tensor, function: np.ufunc) -> Tensor:
    return dataclasses.replace(one, read=lambda: function(one.read(), other.read()))


def _own_layer(name: str) -> int:
    """Returns the layer that a weight belongs to alone, or -1."""
    is_own = name.startswith(OWN)
    return int(name.removeprefix(OWN).partition("/")[0]) if is_own else -1
