"""Turns oneDNN's kernels on where TensorFlow leaves them off and they are faster.

TensorFlow uses them by default only on CPUs with instructions for neural networks
(AVX512_VNNI or later). Measured on a CPU with AVX-512 but without these, they make a
float32 training step faster and a bfloat16 step 2.3 times slower
(docs/benchmarks/step.md). `pretrain`, `predict`, `embed` and their benchmarks choose;
`evaluate` must compute what `finetune` computed.
"""

import os
import pathlib

_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_CPU_INFO = pathlib.Path("/proc/cpuinfo")


def choose(precision: str) -> None:
    """Sets TensorFlow's variable before it is imported, unless the user has set it.

    Args:
        precision: str. As in the settings; only "float32" profits.
    """
    if precision == "float32" and _VARIABLE not in os.environ and _has_avx512():
        os.environ[_VARIABLE] = "1"


def _has_avx512() -> bool:
    try:
        with _CPU_INFO.open() as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:  # not Linux
        return False
    return "avx512f" in flags.split()
