"""A checkpoint finds its head in the names of its tensors."""

import numpy as np
import pytest

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint, Tensor


@pytest.mark.parametrize(
    ("parts", "head"),
    [
        ((), None),
        (("mlm_head",), "masked_lm"),
        (("mlm_head", "sop_head"), "pretraining"),
        (("sop_head",), None),
        (("classifier",), None),  # four heads have one
    ],
)
def test_guess_head(parts, head):
    names = [f"{part}/bias" for part in ("backbone", *parts)]
    tensors = {name: Tensor.of(name, np.zeros(1, np.float32)) for name in names}
    assert Checkpoint("tf1", "m", AlbertConfig(), tensors).guess_head() == head
