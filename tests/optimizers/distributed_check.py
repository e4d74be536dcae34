"""Trains with two replicas and with one device and prints the differences.

A program of its own, because logical devices must be set before TensorFlow starts.
Usage: distributed_check.py MODE:OPTIMIZER ... with the modes
  fit           `model.fit`
  loop          `strategy.run`; the optimizer sums the gradients over the replicas
  loop_reduced  `strategy.run`; the step sums them
  loop_scaled   as loop_reduced, with `LossScaleOptimizer`
Prints one line of JSON a case.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

from albert_tf.optimizers.create import create_optimizer

VOCABULARY, LENGTH, WIDTH, BATCH, STEPS = 7, 5, 4, 8, 12


def make_data():
    rng = np.random.default_rng(11)
    ids = rng.integers(0, VOCABULARY, (BATCH * STEPS, LENGTH)).astype("int32")
    targets = rng.normal(size=(BATCH * STEPS, 2)).astype("float32")
    return ids, targets


def make_model():
    """Embeddings with repeated ids, a layer norm, biases; both kinds of exclusion."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, WIDTH)(inputs)
    x = keras.layers.LayerNormalization(name="layer_norm")(x)
    x = keras.layers.Dense(WIDTH, "tanh")(keras.layers.Flatten()(x))
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def make_optimizer(name):
    # The clip norm is small enough to clip at every step.
    return create_optimizer(
        name,
        learning_rate=0.05,
        num_train_steps=2 * STEPS,
        num_warmup_steps=3,
        clip_norm=0.05,
    )


def train_fit(strategy, name):
    with strategy.scope():
        model = make_model()
        model.compile(make_optimizer(name), loss="mse")
    data = tf.data.Dataset.from_tensor_slices(make_data())
    model.fit(data.batch(BATCH), epochs=2, verbose=0, shuffle=False)
    return model, model.optimizer


def train_loop(strategy, name, mode):
    with strategy.scope():
        model = make_model()
        optimizer = wrapped = make_optimizer(name)
        optimizer.sum_over_replicas = mode == "loop"
        if mode == "loop_scaled":
            wrapped = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=16.0)
        wrapped.build(model.trainable_variables)
    variables = model.trainable_variables

    def step(ids, targets):
        with tf.GradientTape() as tape:
            squares = (model(ids, training=True) - targets) ** 2
            loss = wrapped.scale_loss(tf.reduce_sum(squares) / (BATCH * 2.0))
        gradients = tape.gradient(loss, [v.value for v in variables])
        if mode != "loop":
            gradients = [tf.convert_to_tensor(g) for g in gradients]
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        wrapped.apply(gradients, variables)

    @tf.function
    def train(iterator, count):
        for _ in tf.range(count):
            strategy.run(step, next(iterator))

    data = tf.data.Dataset.from_tensor_slices(make_data()).batch(BATCH).repeat(2)
    iterator = iter(strategy.experimental_distribute_dataset(data))
    for _ in range(2 * STEPS // 4):
        train(iterator, tf.constant(4))
    return model, optimizer


def compare(strategies, mode, name):
    results = []
    for strategy in strategies:
        if mode == "fit":
            model, optimizer = train_fit(strategy, name)
        else:
            model, optimizer = train_loop(strategy, name, mode)
        assert int(optimizer.iterations.numpy()) == 2 * STEPS
        weights = np.concatenate([w.ravel() for w in model.get_weights()])
        results.append((weights, float(optimizer.last_global_norm.numpy())))
    start = np.concatenate([w.ravel() for w in make_model().get_weights()])
    (one, one_norm), (two, two_norm) = results
    return {
        "case": f"{mode}:{name}",
        "moved": float(np.abs(one - start).max()),
        "norms": [one_norm, two_norm],
        "difference": float(np.abs(one - two).max()),
    }


def main():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    strategies = [
        tf.distribute.get_strategy(),
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    ]
    for case in sys.argv[1:]:
        print(json.dumps(compare(strategies, *case.split(":"))), flush=True)


if __name__ == "__main__":
    main()
