"""The engine of a run: what trains, on the backend that Keras was started with.

Both have the same names. `Strategy` stands for the devices of a run: a
`tf.distribute.Strategy`, or `jax.devices.Devices`.
"""

import keras

if keras.backend.backend() == "jax":
    from albert_tf.training.jax.devices import Devices as Strategy
    from albert_tf.training.jax.devices import (
        bring_home,
        create_strategy,
        default_strategy,
        helper_name,
        is_one_of_several,
        is_tpu,
        leave_together,
        make_deterministic,
        num_shares,
        share,
        value_of,
        worker_errors,
    )
    from albert_tf.training.jax.step import EvaluationStep, TrainStep, distribute
else:
    import tensorflow as tf

    from albert_tf.training.tensorflow.step import EvaluationStep, TrainStep, distribute
    from albert_tf.training.tensorflow.strategy import (
        bring_home,
        create_strategy,
        default_strategy,
        helper_name,
        is_one_of_several,
        is_tpu,
        leave_together,
        make_deterministic,
        num_shares,
        share,
        value_of,
        worker_errors,
    )

    Strategy = tf.distribute.Strategy

__all__ = [
    "EvaluationStep",
    "Strategy",
    "TrainStep",
    "bring_home",
    "create_strategy",
    "default_strategy",
    "distribute",
    "helper_name",
    "is_one_of_several",
    "is_tpu",
    "leave_together",
    "make_deterministic",
    "num_shares",
    "share",
    "value_of",
    "worker_errors",
]
