"""Trainings of a few steps, of any kind and on either engine.

`run_cases` trains each case in a process of its own, because devices can only be
divided before an engine starts. A case is a dict, the arguments of `train`.
"""

import collections
import contextlib
import functools
import hashlib
import json
import sys

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.heads import find
from albert_tf.layers.dropout import Dropout, StepSeeds
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.objectives.embedding import AdaptiveLayer, Contrastive, Matryoshka
from albert_tf.objectives.pretraining import OBJECTIVES
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.engine import TrainStep, bring_home, create_strategy, distribute
from albert_tf.training.pretrain_teacher import Distillation
from albert_tf.training.random_depth import RandomDepth
from albert_tf.training.weights import mark_trained
from tests.backends.differentiate import value_and_gradients

BACKEND = keras.backend.backend()
NUM_DEVICES = 2  # of "mirrored"
BATCHES, ROWS, LENGTH, PREDICTIONS = 5, 16, 7, 3
CONFIG = AlbertConfig(
    vocab_size=53,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=16,
)
OPTIMIZER = {"learning_rate": 0.05, "num_train_steps": 20, "num_warmup_steps": 2}
OPTIMIZER |= {"clip_norm": 0.5, "ema_decay": 0.9}
# Objectives that compare the vectors of a whole batch.
OF_VECTORS = {"vectors": Contrastive(directions="both")}
OF_VECTORS["layers"] = AdaptiveLayer(Matryoshka(Contrastive(), (5, 16)), (1, 2))
strategies = {}


def make_rows(packing=False, pairs=True):
    """Returns all batches, one after another."""
    rng = np.random.default_rng(0)
    rows = BATCHES * ROWS
    weights = np.ones((rows, PREDICTIONS), "float32")
    weights[::3, -1] = 0  # devices have different numbers of predictions
    found = {
        "token_ids": rng.integers(0, 53, (rows, LENGTH)),
        "segment_ids": rng.integers(0, 2, (rows, LENGTH)),
        "padding_mask": np.tile(np.arange(LENGTH) < 6, (rows, 1)),
        "mask_positions": np.tile([[1, 2, 4]], (rows, 1)),
        "mask_ids": rng.integers(0, 53, (rows, PREDICTIONS)),
        "mask_weights": weights,
        "sample_draws": rng.random((rows, PREDICTIONS)).astype("float32"),
    }
    examples = (rows, 2) if packing else rows
    if pairs:
        found["sentence_order_labels"] = rng.integers(0, 2, examples)
        found["sentence_order_weights"] = np.ones(examples, "float32")
    if packing:
        found["pack_ids"] = np.tile([[1, 1, 1, 2, 2, 2, 0]], (rows, 1))
        found["position_ids"] = np.tile([[0, 1, 2, 0, 1, 2, 0]], (rows, 1))
        found["cls_positions"] = np.tile([[0, 3]], (rows, 1))
    return {
        name: value if value.dtype == np.float32 else value.astype("int32")
        for name, value in found.items()
    }


def make_texts(texts=3):
    """Returns examples of several texts, some of which are equal or missing."""
    rng = np.random.default_rng(0)
    shape = BATCHES * ROWS, texts
    numbers = rng.integers(1, 60, shape)
    tokens = rng.integers(0, 53, (60, LENGTH))
    exist = rng.random(shape) < np.array([1, 1, 0.8])
    found = {
        "token_ids": tokens[numbers],
        "padding_mask": np.tile(np.arange(LENGTH) < 6, (*shape, 1)),
        "choice_mask": exist,
        "text_ids": numbers * exist,
    }
    return {name: value.astype("int32") for name, value in found.items()}


def make_data(rows):
    return tf.data.Dataset.from_tensor_slices(rows).batch(ROWS, True).repeat()


def make_step(
    *,
    kind="one_device",
    learns="albert",
    name="lamb",
    optimizer=None,
    config=None,
    dropout=0.0,
    precision="float32",
    pair_weight=1.0,
    loss_scale=None,
    draws=False,
    depths=None,
    taught=(),
    **options,
):
    if depths:
        options["random_depth"] = RandomDepth(1, *depths)
    objective, head = OF_VECTORS.get(learns), "text_embedder"
    if objective is None:
        objective = OBJECTIVES[learns].with_pair_weight(pair_weight)
        head = objective.head
    config = {"hidden_dropout_prob": dropout, **(config or {})}
    config = CONFIG.replace(attention_probs_dropout_prob=dropout, **config)
    strategy = strategies.get(kind) or tf.distribute.get_strategy()
    with strategy.scope():
        model = find(head).load_class()(config, seed=3, dtype=precision)
        adam = create_optimizer(name, **{**OPTIMIZER, **(optimizer or {})})
        if taught:  # by a wider model, and with these pairs of layers
            objective = objective.with_teacher(0.7, 2.0, True)
            wide = CONFIG.replace(hidden_size=24, num_hidden_layers=3)
            options["forward"] = Distillation(
                model, AlbertMaskedLM(wide, seed=9, dtype=precision), taught, seed=4
            )
    if draws:  # each engine draws other initial values
        rng = np.random.default_rng(1)
        forward, teacher = options.get("forward"), {}
        if taught:
            teacher = weight_names(forward.teacher) | forward.extra_weights
        for variable in [*weight_names(model).values(), *teacher.values()]:
            drawn = rng.normal(0, 0.2, variable.shape)
            variable.assign(drawn + ("gamma" in variable.path))
    if learns == "layers":
        layers = objective.layers
        options["forward"] = functools.partial(model.every_layer, layers=layers)
    model.mark_untrained()
    step = TrainStep(model, objective, adam, strategy, seed=1, **options)
    if loss_scale:
        adam.loss_scale.value.assign(loss_scale)
    return step


def train(
    *,
    calls=(1,) * 6,
    packing=False,
    pairs=True,
    records_masks=False,
    answers=False,
    undivided=False,
    **options,
):
    """Trains a model; returns its weights and what the step said.

    Args:
        calls: list. Numbers of steps in each call.
        answers: bool. Whether the trained model is evaluated and answers, too.
        undivided: bool. Whether to differentiate the first batch as a whole, too.
        **options: Arguments of `make_step`.
    """
    masks = _record_masks() if records_masks else {}
    step = make_step(**options)
    of_vectors = step.objective in OF_VECTORS.values()
    rows = make_texts() if of_vectors else make_rows(packing, pairs)
    first, frozen = values_of(step), _frozen(step)
    iterator = iter(distribute(step.strategy, lambda *_: make_data(rows)))
    found, sums = collections.defaultdict(list), None
    found["scales"] = []
    if undivided:
        found["undivided"] = _norm_of_a_batch(step, rows, options)
    for count in calls:
        with _explicit_transfers() if sums else contextlib.nullcontext():
            sums = step.train(iterator, count, sums)
        found["rates"].append(float(sums["learning_rate"]))
        found["losses"] += sums["losses"].tolist()
        # Whether an overflow is infinite or no number is up to the engine.
        norms = np.nan_to_num(sums["grad_norms"], nan=-1, posinf=-1)
        found["norms"] += norms.tolist()
        found["scales"] += [*sums.get("loss_scales", ())]
        found["skipped"].append(sums.get("skipped_steps", -1))
    found |= {f"masks/{replica}": seen for replica, seen in masks.items()}
    found |= {f"sum/{k}": float(sums[k]) for k in step.sum_names}
    found |= {f"ratio/{k}": v for k, v in sums.get("trust_ratios", {}).items()}
    found |= _left(step, first)
    for before, after in zip(frozen, _frozen(step), strict=True):
        np.testing.assert_array_equal(before, after)
    if answers:
        found |= _answers(step, iterator, rows)
    return {**found, **values_of(step)}


def _explicit_transfers():
    """Refuses numbers that reach JAX's devices one by one, not as a batch."""
    if BACKEND != "jax":
        return contextlib.nullcontext()
    import jax

    return jax.transfer_guard("disallow")


def _norm_of_a_batch(step, rows, options):
    """Returns the norm of the gradient of the first batch, kept in memory at once."""
    rows = {name: value[:ROWS] for name, value in rows.items()}
    devices = NUM_DEVICES if options.get("kind") == "mirrored" else 1
    parts = options["accumulation"]
    seeds = [StepSeeds(1 + d * 7919, i) for d in range(devices) for i in range(parts)]
    cut = {name: np.split(value, len(seeds)) for name, value in rows.items()}

    def loss():
        outputs = [
            step.model({n: v[i] for n, v in cut.items()}, training=True, seeds=one)
            for i, one in enumerate(seeds)
        ]
        sums = step.objective.sums(keras.ops.concatenate(outputs), rows)
        return step.objective.loss(sums, step.objective.weights(rows))

    _, *gradients = value_and_gradients(loss, step.model.trainable_variables)
    # It differentiates the loss times a number that it draws.
    factor = np.random.default_rng(7).normal(size=())
    return np.sqrt(sum(np.sum(np.square(g / factor)) for g in gradients))


def values_of(step):
    """Returns the weights and their averages."""
    found = {}
    for name, variable in weight_names(step.model).items():
        average = step.optimizer.slot(variable, "average")
        found[f"weight/{name}"] = np.array(variable)
        found[f"average/{name}"] = np.array(average)
    for name, variable in step.extra.items():
        found[f"weight/{name}"] = np.array(variable)
    return found


def _frozen(step):
    """Returns the weights of the teacher."""
    return [np.array(v) for v in getattr(step.forward, "frozen", ())]


def _left(step, first):
    """Returns what nothing has touched: the weight, its average, its moments."""
    mark_trained(step.model, step.optimizer)
    last, left = values_of(step), []
    for name, variable in weight_names(step.model).items():
        kinds = (f"weight/{name}", f"average/{name}")
        moments = (step.optimizer.slot(variable, x) for x in "mv")
        same = all(np.array_equal(last[k], first[f"weight/{name}"]) for k in kinds)
        if same and not any(np.any(np.array(x)) for x in moments):
            left.append(name)
    if BACKEND == "tensorflow":
        for variable in step.model.trainable_variables:
            parts = step.strategy.experimental_local_results(variable.value)
            for part in parts[1:]:
                np.testing.assert_array_equal(parts[0], part)
    untrained = sorted(step.model.untrained_weights)
    iterations = int(step.optimizer.iterations.numpy())
    return {"left": sorted(left), "untrained": untrained, "iterations": iterations}


def _answers(step, iterator, rows):
    sums = dict(zip(step.sum_names, step.evaluate(next(iterator)), strict=True))
    found = {f"evaluated/{k}": float(sums[k]) for k in step.sum_names}
    outputs = step.predict({name: value[:8] for name, value in rows.items()})
    outputs = outputs["mlm_logits"] if isinstance(outputs, dict) else outputs
    before = values_of(step)
    bring_home(step.strategy, step.model)
    for name, variable in weight_names(step.model).items():
        assert BACKEND != "jax" or len(variable.value.devices()) == 1
        np.testing.assert_array_equal(variable, before[f"weight/{name}"])
    return {**found, "outputs": outputs}


def _record_masks():
    """Lets dropout record its masks, by replica, as shapes and digests."""
    drop, masks = Dropout.call, collections.defaultdict(list)

    def record(replica, mask):
        digest = hashlib.sha256(np.packbits(mask != 0).tobytes()).hexdigest()
        masks[int(replica)].append(f"{mask.shape} {digest}")

    def drop_and_record(self, x, training=False, seeds=None):
        mask = drop(self, tf.ones_like(x), training, seeds)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        tf.numpy_function(record, [replica, mask], [])
        return x * mask

    Dropout.call = drop_and_record
    return masks


def run_cases(run_forked, folder, cases, **variables):
    """Trains cases; returns arrays by case and name."""
    path = folder / "found.npz"
    arguments = ["-m", "tests.training.steps", path, json.dumps(cases)]
    done = run_forked(*arguments, **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    found = collections.defaultdict(dict)
    for key, value in np.load(path).items():
        case, _, name = key.partition(":")
        found[case][name] = value
    return found


def main(path, cases):
    """Trains the cases and writes what they have found."""
    if BACKEND == "jax":  # or programs of a few operations are compiled for hours
        import jax

        jax.config.update("jax_disable_most_optimizations", True)
    # First, because it splits the CPU; one device is then one of the parts.
    for kind in ("mirrored", "one_device"):
        several = {"num_devices": NUM_DEVICES} if kind == "mirrored" else {}
        strategies[kind] = create_strategy(kind, **several)
    drop, found = Dropout.call, {}
    for name, case in json.loads(cases).items():
        Dropout.call = drop
        found |= {f"{name}:{k}": np.array(v) for k, v in train(**case).items()}
    np.savez(path, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
