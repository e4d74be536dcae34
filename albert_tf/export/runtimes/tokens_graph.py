"""The part of a model that every runtime computes: from token ids to its outputs.

Legend: `B` batch, `T` sequence, `K` choices, `P` masks.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.converters.checkpoint.keras_model import head_of
from albert_tf.heads import find
from albert_tf.models.tensorflow import fast_forward

SIGNATURE = "serving_default"


class TokensGraph:
    """A model as a function of whole numbers.

    Its inputs are int32 and of any size: `token_ids`, `segment_ids` and `padding_mask`
    `[B, T]` (`[B, K, T]` for multiple choice), for masked LMs also `mask_positions`
    `[B, P]`, for the beam head `p_mask` `[B, T]`. Its outputs are those of the Keras
    model; a single one is named `logits`.

    Args:
        model: keras.Model. Any model of this package.

    Attributes:
        head: `Head`. The model's.
        inputs: tuple of str. Names of the inputs.
    """

    def __init__(self, model: keras.Model):
        self.model = model
        self.head = find(head_of(model))
        self.inputs = self._inputs()

    def _inputs(self) -> tuple[str, ...]:
        names = (features.TOKEN_IDS, features.SEGMENT_IDS, features.PADDING_MASK)
        if self.head.has_masked_lm:
            return (*names, features.MASK_POSITIONS)
        if self.head.name == "beam_question_answering":
            return (*names, features.P_MASK)
        return names

    def shape(self, name: str) -> list[None]:
        """Returns the shape of an input."""
        return [None] * (2 if name == features.MASK_POSITIONS else self.head.input_rank)

    def specs(self) -> list[tf.TensorSpec]:
        """Returns name, type and shape of every input."""
        return [tf.TensorSpec(self.shape(n), tf.int32, n) for n in self.inputs]

    def outputs(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Computes the outputs with Keras."""
        outputs = self.model(batch, training=False)
        if not isinstance(outputs, Mapping):
            outputs = {"logits": outputs}
        return {n: v for n, v in outputs.items() if v is not None}

    def serve(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the outputs of tensors in the order of `inputs`."""
        batch = dict(zip(self.inputs, tensors, strict=True))
        # A name of its own for each tensor, even for one that is also an input.
        return {n: tf.identity(v, n) for n, v in self.outputs(batch).items()}

    @contextlib.contextmanager
    def function(
        self, max_rank: int = 5
    ) -> Iterator[tf.types.experimental.GenericFunction]:
        """Yields the model in TensorFlow; what traces it does so in this context.

        Args:
            max_rank: int. Axes that a tensor of the encoder may have; 4 or more.
        """
        forward = fast_forward.choose(self.model, "float32", max_rank)
        with fast_forward.replacing(self.model, forward):
            yield tf.function(self.serve, input_signature=self.specs())

    @contextlib.contextmanager
    def saved_model(self, max_rank: int = 5) -> Iterator[str]:
        """Yields a temporary folder with the model as a SavedModel.

        Args:
            max_rank: int. As for `function`.
        """
        with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
            archive = keras.export.ExportArchive()
            archive.track(self.model)
            with self.function(max_rank) as function:
                archive.add_endpoint(SIGNATURE, function)
                archive.write_out(folder, verbose=False)
            yield folder

    def random_batch(
        self, rows: int, size: int, rng: np.random.Generator, full: bool = False
    ) -> dict[str, np.ndarray]:
        """Returns rows of random tokens.

        Args:
            rows: int. Number of rows; of multiple choice, three choices each.
            size: int. Tokens in a row.
            rng: `np.random.Generator`.
            full: bool. Whether no row is padded.
        """
        shape = (rows, 3, size) if self.head.input_rank == 3 else (rows, size)
        lengths = rng.integers(size if full else 2, size + 1, shape)[..., :1]
        batch = {
            features.TOKEN_IDS: rng.integers(0, self.model.config.vocab_size, shape),
            features.SEGMENT_IDS: np.zeros(shape),
            features.PADDING_MASK: np.arange(size) < lengths,
            features.MASK_POSITIONS: rng.integers(0, size, (rows, 2)),
            features.P_MASK: np.zeros(shape),
        }
        return {n: np.asarray(batch[n], np.int32) for n in self.inputs}
