"""The engine of a run: training on the backend that Keras was started with.

Both engines define the same names. `Strategy` stands for the devices of a run: a
`tf.distribute.Strategy`, or `jax.devices.Devices`.
"""

import keras

if keras.backend.backend() == "jax":
    from albert_tf.training.jax import devices, step
else:
    from albert_tf.training.tensorflow import step
    from albert_tf.training.tensorflow import strategy as devices

EvaluationStep, TrainStep = step.EvaluationStep, step.TrainStep
distribute = step.distribute
Strategy = devices.Strategy
bring_home = devices.bring_home
compilation_cache = devices.compilation_cache
create_strategy = devices.create_strategy
default_strategy = devices.default_strategy
helper_name = devices.helper_name
is_one_of_several = devices.is_one_of_several
is_tpu = devices.is_tpu
join_rows = devices.join_rows
leave_together = devices.leave_together
make_deterministic = devices.make_deterministic
num_shares = devices.num_shares
share = devices.share
start_trace, stop_trace = devices.start_trace, devices.stop_trace
takes_several_processes = devices.takes_several_processes
value_of = devices.value_of
worker_errors = devices.worker_errors
