"""Turns texts into vectors that are compared by their cosine.

Legend: `B` rows, `T` sequence, `U` examples, `K` texts of an example, `E` numbers of a
vector.
"""

from collections.abc import Mapping, Sequence

import keras
import numpy as np
from keras import ops

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.heads import OPTION_RULES, prompts_of, with_prompt
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

    With a `preprocessor`, `fit` takes a tuple of lists of strings, the first, second
    and further texts of every example, which are encoded one by one after their
    prompts; for `ContrastiveLoss`, without labels. `predict` of a list puts no prompt
    before a text; `Embedder` does.

    Example:
        >>> import albert_tf
        >>> model = albert_tf.AlbertTextEmbedder.from_pretrained(
        ...     "demo_output/pretrain/model", dimension=64)
        >>> model.compile("adam", albert_tf.ContrastiveLoss())
        >>> pairs = (["Is it red?", "Where is it?"], ["It is blue.", "In the house."])
        >>> history = model.fit(pairs, verbose=0)
        >>> model.predict(["It is red."], verbose=0).shape
        (1, 64)
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
        fits = isinstance(dimension, int) and 0 <= dimension <= size
        require(fits, expected, dimension, error=ValueError)
        self.pooling = pooling or "mean"
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
        self._texts_per_example = 0
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

    def build_layers(self):
        if self.projection is not None:
            self.projection.build((None, self.config.hidden_size))

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

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Returns the loss, as in Keras; one that ignores labels needs none."""
        need = "y: expected a score for each example, received none"
        require(y is not None or getattr(self.loss, "ignores_labels", False), need)
        y = ops.zeros(ops.shape(y_pred)[:1]) if y is None else y
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def _encoded(self, x):
        """Encodes the texts of an example one by one."""
        spec = getattr(x, "element_spec", None)
        first = spec[0] if isinstance(spec, tuple) else spec
        need = (
            "x: give pairs as a tuple of lists of strings; a data set must hold inputs"
        )
        is_nested = isinstance(x, list) and x and isinstance(x[0], list | tuple)
        require(not isinstance(first, tuple) and not is_nested, need)
        if self.preprocessor is None or not isinstance(x, tuple):
            encoded = super()._encoded(x)
            if isinstance(encoded, dict) and encoded is not x:
                self._forget_programs(0)
            return encoded
        query, passage = prompts_of(self.prompts)
        parts = [
            self.preprocessor.encode_texts(with_prompt(passage if i else query, part))
            for i, part in enumerate(x)
        ]
        require(all(isinstance(part, dict) for part in parts), need)
        sizes = [len(part[features.TOKEN_IDS]) for part in parts]
        need = "x: expected lists of the same number of texts"
        require(len({*sizes}) == 1, need, sizes)
        self._forget_programs(len(parts))
        return {name: np.stack([part[name] for part in parts], 1) for name in parts[0]}

    def _forget_programs(self, count: int) -> None:
        """Compiles `fit` and `predict` anew for another number of texts."""
        # TensorFlow would trace the old ones for inputs of any rank. Not called for
        # ready inputs: `fit` evaluates them while it runs.
        if count != self._texts_per_example:
            self.train_function = self.test_function = self.predict_function = None
        self._texts_per_example = count

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
    return flat, (-1, ops.shape(inputs[features.TOKEN_IDS])[1])
