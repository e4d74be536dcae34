"""The work of a contestant of the step benchmark, and the result of its engine."""

import dataclasses
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig

# Kinds of work: a step of pretraining with its optimizer; gradients of the encoder
# alone; its outputs.
STEP, GRADIENT, OUTPUT = "step", "gradient", "output"
PRODUCT = "product"  # of two matrices of `PRODUCT_SIZE`, for comparison
PRODUCT_SIZE = 8192
# Forms of the attention, which the frameworks name differently.
EAGER, FUSED = "eager", "fused"


@dataclasses.dataclass(frozen=True)
class Case:
    """The work of a contestant.

    Attributes:
        config: `AlbertConfig`. Size of the model; its weights are random.
        batch: dict of arrays. Every step reads it.
        work: str. `STEP`, `GRADIENT`, `OUTPUT` or `PRODUCT`.
        precision: str. "bfloat16" or "float32".
        depth: str. Form of the encoder, as for `pretrain`.
        attention: str. `EAGER` or `FUSED`.
        compiled: bool. Whether `torch.compile` compiles transformers' model.
        masked: bool. Whether transformers' step is given a mask that masks nothing.
    """

    config: AlbertConfig
    batch: Mapping[str, np.ndarray]
    work: str = STEP
    precision: str = "bfloat16"
    depth: str = "unrolled"
    attention: str = FUSED
    compiled: bool = True
    masked: bool = False


@dataclasses.dataclass
class Prepared:
    """The result of an engine for a case, after its first step.

    Attributes:
        run: callable. Computes a number of steps, and waits for the device.
        facts: dict. `first`, seconds until the first step has ended, with compilation;
            where known, `memory`, the peak in bytes of the process on its device, and
            `program`, bytes that the compiled program needs there. Or only `failed`:
            the reason why it cannot be computed.
    """

    run: Callable[[int], object]
    facts: dict[str, Any]


def prepared_or_failed(prepare: Callable[[], Prepared]) -> Prepared:
    """Returns the result of `prepare`; if it fails, the reason as the fact `failed`."""
    try:
        return prepare()
    except Exception as e:
        traceback.print_exc()
        return Prepared(lambda steps: None, {"failed": reason(e)})


def reason(error: Exception) -> str:
    """Returns the kind of an error and the first line of its message."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first[:200]}"
