"""Turns texts into vectors that are compared by their cosine.

Legend: `B` rows, `T` sequence, `U` examples, `K` texts of an example, `E` numbers of a
vector.
"""

from collections.abc import Mapping, Sequence

import keras
from keras import ops

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.heads import OPTION_RULES
from albert_tf.layers.gathering import gather_places
from albert_tf.layers.pooling import pool_texts, unit_length
from albert_tf.models.backbone import HeadModel
from albert_tf.models.base import as_inputs


@keras.saving.register_keras_serializable("albert_tf")
class AlbertTextEmbedder(HeadModel):
    """Turns each text into a vector, as sentence-transformers' models do.

    Args:
        config: `AlbertConfig`.
        pooling: str. `"mean"` or `"max"` over the tokens of the text, special tokens
            included, `"cls"` for the state of `[CLS]`, or `"pooled"` for the pooler's
            output.
        projection_size: int. Outputs of a dense layer after the pooling; 0 for none.
        projection_act: str. Its activation, `"linear"` or `"tanh"`.
        normalize: bool. Whether vectors have length 1.
        dimension: int. The first numbers of each vector that are kept (Matryoshka,
            arXiv:2205.13147); 0 for all. They are normalized afterwards.
        prompts: dict or None. Text that `Embedder` puts before a text, by the role of
            the text, such as `"query"`; the role `""` applies where none is named.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        inputs: dict as for `AlbertBackbone`, every value `[B, T]`, or `[U, K, T]` for
            examples of several texts. Or rows `[B, T]`, packed or not, with `places`
            int32 `[U, K]`: where each text starts, as an index of the flattened rows.
        training, seeds: As for `AlbertBackbone`.

    Returns:
        float32 vectors `[B, E]`, or `[U, K, E]`.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.AlbertTextEmbedder(albert_tf.AlbertConfig(), dimension=64)
        >>> model({"token_ids": np.array([[2, 13, 1, 3], [2, 45, 46, 3]])}).shape
        TensorShape([2, 64])
    """

    head = "text_embedder"

    def __init__(
        self,
        config: AlbertConfig,
        *,
        pooling: str = "mean",
        projection_size: int = 0,
        projection_act: str = "linear",
        normalize: bool = True,
        dimension: int = 0,
        prompts: Mapping[str, str] | None = None,
        **kwargs,
    ):
        size = projection_size or config.hidden_size
        expected = f"dimension must be from 1 to {size}, the numbers of a vector"
        require(0 <= dimension <= size, expected, dimension, error=ValueError)
        self.pooling = pooling
        self.projection_size = projection_size
        self.projection_act = projection_act if projection_size else ""
        self.normalize = normalize
        self.dimension = dimension
        self.prompts = prompts or {}
        for name, (rule, fits) in OPTION_RULES.items():
            value = getattr(self, name)
            message = f"{name} must be {rule}"
            require(not value or fits(value), message, value, error=ValueError)
        self.reads_pooler = pooling == "pooled"
        super().__init__(config, **kwargs)

    def add_layers(self):
        self.projection = None
        if self.projection_size:
            self.projection = self.add_dense(
                self.projection_size,
                "projection",
                6,
                activation=self.projection_act,
                dtype="float32",
            )

    def build(self, input_shape=None):
        if not self.built and self.projection is not None:
            self.projection.build((None, self.config.hidden_size))
        self.built = True

    @property
    def vector_size(self) -> int:
        """`E`, the numbers of a vector."""
        return self.dimension or self.projection_size or self.config.hidden_size

    def call(self, inputs, training=False, seeds=None):
        """Returns float32 `[B, E]` or `[U, K, E]`; see the class."""
        inputs, shape = _rows(inputs)
        run = {"training": training, "seeds": seeds}
        if self.reads_pooler:
            x = self.backbone(inputs, pooled_only=True, **run)["pooled_output"]
            vectors = self.from_pooled(ops.cast(x, "float32"))
        else:
            x = self.backbone(inputs, **run)["sequence_output"]
            vectors = self.from_states(x, inputs)
        return ops.reshape(vectors, (*shape, self.vector_size)) if shape else vectors

    def every_layer(
        self, inputs, layers: Sequence[int], training=False, seeds=None
    ) -> tuple:
        """Returns the vectors after each of the layers, which count from 1."""
        inputs, shape = _rows(inputs)
        outputs = self.backbone(
            inputs, output_hidden_states=True, training=training, seeds=seeds
        )
        states, blocks = outputs["hidden_states"], self.config.inner_group_num
        vectors = [self.from_states(states[n * blocks], inputs) for n in layers]
        size = self.vector_size
        return tuple(ops.reshape(x, (*shape, size)) if shape else x for x in vectors)

    def from_states(self, x, inputs):
        """Returns the vectors of texts with the states `x`, `[B, T, D]`, of a layer."""
        if self.reads_pooler:
            places = inputs.get(features.PLACES)
            first = x[:, 0] if places is None else gather_places(x, places)
            return self.from_pooled(ops.cast(self.backbone.pooler(first), "float32"))
        mask = self.backbone.mask_of(inputs)
        return self.from_pooled(pool_texts(x, inputs, mask, self.pooling))

    def from_pooled(self, x):
        """Returns the vectors for float32 `[..., D]`: projected, cut, normalized."""
        x = x if self.projection is None else self.projection(x)
        x = x[..., : self.dimension] if self.dimension else x
        return unit_length(x) if self.normalize else x

    def get_config(self):
        names = ("pooling", "projection_size", "projection_act", "dimension", "prompts")
        options = {name: getattr(self, name) for name in names}
        stored = {name: value for name, value in options.items() if value}
        return {**super().get_config(), "normalize": self.normalize, **stored}


def _rows(inputs) -> tuple[dict, tuple]:
    """Returns inputs as rows, and the shape `(U, K)` of examples; empty for rows."""
    inputs = as_inputs(inputs)
    shape = inputs[features.TOKEN_IDS].shape
    if len(shape) != 3:
        return inputs, ()
    # A batch also holds targets, which no model reads.
    flat = {
        name: ops.reshape(value, (-1, shape[-1]))
        for name, value in inputs.items()
        if len(value.shape) == 3
    }
    return flat, (-1, shape[1])
