"""Which devices a run uses."""

import json
import os

import tensorflow as tf

from albert_tf.errors import UsageError

DISTRIBUTIONS = ("one_device", "mirrored", "multi_worker", "tpu")


def create_strategy(
    distribution: str = "one_device",
    *,
    num_devices: int | None = None,
    tpu_name: str = "local",
) -> tf.distribute.Strategy:
    """Makes the `tf.distribute` strategy of a run.

    Call it before anything else of TensorFlow: several CPU devices and the workers'
    connections can only be set up before the first operation.

    Args:
        distribution: `"one_device"`, the first GPU or else the CPU; `"mirrored"`, all
            GPUs of this machine, or `num_devices` parts of the CPU; `"multi_worker"`,
            the machines that the environment variable TF_CONFIG names; `"tpu"`.
        num_devices: int or None. With `"mirrored"`: how many.
        tpu_name: str. With `"tpu"`: what `TPUClusterResolver` takes; `"local"` on a
            TPU VM.

    Raises:
        UsageError: If the devices are not there.
    """
    if distribution not in DISTRIBUTIONS:
        raise UsageError(
            f"--distribution must be one of {', '.join(DISTRIBUTIONS)}, "
            f"received {distribution!r}"
        )
    if num_devices is not None and distribution != "mirrored":
        raise UsageError(
            f"--num_devices needs --distribution=mirrored, received {distribution!r}"
        )
    if distribution == "one_device":
        gpu = tf.config.list_physical_devices("GPU")
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpu else "/cpu:0")
    if distribution == "mirrored":
        return tf.distribute.MirroredStrategy(_local_devices(num_devices))
    if distribution == "multi_worker":
        _check_tf_config()
        return tf.distribute.MultiWorkerMirroredStrategy()
    return _tpu_strategy(tpu_name)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files that exist once per run."""
    resolver = strategy.cluster_resolver
    if resolver is None or not getattr(resolver, "task_type", None):
        return True
    if resolver.task_type == "chief":
        return True
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_type == "worker" and resolver.task_id == 0 and not has_chief


def _local_devices(num_devices: int | None) -> list[str]:
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        wanted = len(gpus) if num_devices is None else num_devices
        if not 0 < wanted <= len(gpus):
            raise UsageError(
                f"--num_devices must be from 1 to the {len(gpus)} GPUs of this "
                f"machine, received {wanted}"
            )
        return [f"/gpu:{i}" for i in range(wanted)]
    wanted = 2 if num_devices is None else num_devices
    if not 0 < wanted <= 64:
        raise UsageError(f"--num_devices must be from 1 to 64, received {wanted}")
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * wanted
    try:
        tf.config.set_logical_device_configuration(cpu, parts)
    except (RuntimeError, ValueError):
        there = len(tf.config.list_logical_devices("CPU"))
        if there < wanted:
            raise UsageError(
                f"--num_devices={wanted}: TensorFlow started with {there} CPU device(s)"
            ) from None
    return [f"/cpu:{i}" for i in range(wanted)]


def _check_tf_config() -> None:
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        complete = bool(config["cluster"]["worker"]) and "index" in config["task"]
    except (ValueError, KeyError, TypeError):
        complete = False
    if not complete:
        raise UsageError(
            "--distribution=multi_worker needs the environment variable TF_CONFIG with "
            f"cluster.worker and task.index, received {text!r}"
        )


def _tpu_strategy(name: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise UsageError(
            f"--tpu_name={name}: no TPU could be reached: {reason}"
        ) from None
