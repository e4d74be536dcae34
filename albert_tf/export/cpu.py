"""Detects whether this machine's CPU computes bfloat16 natively.

Measured with oneDNN limited to older instructions: without them, an exported bfloat16
model was 3.7 times slower than float32, and with AVX2 alone oneDNN aborted the process.
"""

import pathlib

from absl import logging

from albert_tf.errors import require

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
_NATIVE = frozenset({"avx512_bf16", "amx_bf16"})
_NEEDS = "bfloat16 needs a CPU with AVX512_BF16 or AMX_BF16"


def flags() -> frozenset[str]:
    """Returns the instruction sets of an x86 CPU; empty if they are unknown."""
    try:
        with _CPU_INFO.open() as file:
            line = next((line for line in file if line.startswith("flags")), "")
    except OSError:  # not Linux
        return frozenset()
    return frozenset(line.partition(":")[2].split())


def has_bfloat16() -> bool:
    """Returns whether the CPU is known to compute bfloat16 natively."""
    return bool(flags() & _NATIVE)


def check(precision: str, will_run: bool) -> None:
    """Warns if a model of a precision will be slow here, and rejects what may abort.

    Raises `UsageError` if `will_run` and the precision is bfloat16 on an x86 CPU
    without AVX-512: oneDNN may end the process, and no caller could catch that.
    """
    sets = flags()
    if precision == "float32" or sets & _NATIVE:
        return
    if not sets:
        logging.warning("%s; cannot tell what this machine has", _NEEDS)
        return
    require(
        "avx512f" in sets or not will_run,
        f"precision: {_NEEDS} to run the warm-up requests, because without AVX-512 "
        "oneDNN may abort the process, received a CPU without AVX-512. Export on "
        "another machine, or without requests (warmup_batch_sizes empty)",
    )
    logging.warning(
        "%s; this one has neither. On such CPUs the model was 3.7 times slower than in "
        "float32 (AVX-512), or ended the server's process (AVX2)",
        _NEEDS,
    )
