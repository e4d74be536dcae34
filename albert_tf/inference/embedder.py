"""Turns texts into vectors with a trained encoder.

Legend: `B` texts, `T` sequence, `D` hidden, `E` numbers of a vector, `L` layers.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from albert_tf import features
from albert_tf.errors import DataError, require
from albert_tf.heads import POOLINGS, with_prompt
from albert_tf.inference import predictor
from albert_tf.inference.forward import MAX_BATCH_TOKENS, ROWS, compile_encoder, steps
from albert_tf.tasks.nearest import of_length_1
from albert_tf.tasks.outputs import in_threads, sorted_batches
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import keras


class Embedder(predictor.Loadable):
    """Turns texts into vectors, after any layer of the encoder.

    `from_pretrained` reads a model with any head. A model that was trained for this,
    `AlbertTextEmbedder`, also says how: its pooling, projection, size of the vectors,
    normalization and prompts are used.

    Args:
        model: `AlbertTextEmbedder`, `AlbertBackbone`, or a model that has one.
        tokenizer: `Tokenizer`.
        max_seq_length: int. Longer texts are cut. Default: the length that `model` was
            fine-tuned with, or else its maximum. Of the files of another head,
            `from_pretrained` reads the encoder alone, and takes the maximum.
        batch_size: int. Maximum number of texts per call of the model.
        max_batch_tokens: int. Maximum number of tokens per call.
        num_threads: int. Number of concurrent calls.

    Example:
        >>> import albert_tf
        >>> embed = albert_tf.Embedder.from_pretrained("demo_output/pretrain/model")
        >>> vectors = embed(["What a film!", "Never again."])
        >>> vectors.shape  # of the demo's model
        (2, 128)
    """

    heads = (None, "text_embedder")

    def __init__(
        self,
        model: "keras.Model",
        tokenizer: Tokenizer,
        *,
        max_seq_length: int | None = None,
        batch_size: int = 32,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        num_threads: int = 1,
    ):
        from albert_tf.models.backbone import AlbertBackbone
        from albert_tf.models.embedder import AlbertTextEmbedder

        backbone = getattr(model, "backbone", model)
        expected = f"model must have an encoder, received {type(model).__name__}"
        require(isinstance(backbone, AlbertBackbone), expected)
        predictor.check_fits(backbone, tokenizer)
        predictor.check_count("batch_size", batch_size)
        longest = backbone.config.max_position_embeddings
        if max_seq_length is None:
            max_seq_length = getattr(model, "max_seq_length", None) or longest
        inputs.check_max_seq_length(max_seq_length, pairs=False, longest=longest)
        self.has_head = isinstance(model, AlbertTextEmbedder)
        self.model = model if self.has_head else backbone
        self.prompts = dict(model.prompts) if self.has_head else {}
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.batch_size = batch_size
        self._backbone = backbone
        self._max_batch_tokens = max_batch_tokens
        self._num_threads = num_threads
        self._forwards = {}

    def __call__(
        self,
        texts: str | Sequence[str],
        layer: int = -1,
        pooling: str | None = None,
        on_batch: Callable[[int], None] = lambda rows: None,
        *,
        role: str = "",
        dimension: int | None = None,
    ) -> np.ndarray:
        """Returns the vectors of texts.

        Args:
            texts: str or sequence of str.
            layer: int. 0 for the embeddings (projected to `D`), `L` for the last layer.
                Negative numbers count from the end.
            pooling: str or None. `"mean"` or `"max"` over the tokens of the text,
                special tokens included, `"cls"` for the vector of `[CLS]`, or
                `"pooled"` for the pooler's output, which reads the last layer. None for
                everything as an `AlbertTextEmbedder` was trained, or else the mean.
            on_batch: callable. Called with the number of texts after every batch.
            role: str. Role of the texts, whose prompt is put before each of them, such
                as `"query"`; the model names the roles in `prompts`.
            dimension: int or None. The first numbers of each vector that are kept. If
                the model normalizes its vectors, the shorter ones have length 1, too.

        Returns:
            float32 `[B, E]`, or `[E]` for a single text. `E` is `D` except in a model
            that was trained for other vectors.

        Raises:
            UsageError: If an argument is invalid, or the model has no pooler.
            DataError: If a vector is not finite.
        """
        if isinstance(texts, str | bytes):
            return self([texts], layer, pooling, role=role, dimension=dimension)[0]
        pooling = pooling or (None if self.has_head else "mean")
        forward = self._forward(self._layer_number(layer, pooling), pooling)
        texts = self._with_prompt(predictor.as_texts("texts", texts), role)
        encoded = inputs.encode_texts(
            self.tokenizer, texts, max_seq_length=self.max_seq_length
        )
        lengths, longest = encoded.lengths, self.max_seq_length
        sizes = steps()
        batches = sorted_batches(
            lengths, self.batch_size, self._max_batch_tokens, **sizes
        )

        def compute(rows: np.ndarray) -> np.ndarray:
            most = int(lengths[rows].max())
            length = inputs.rounded_length(most, longest, sizes["step"])
            pad_id = self.tokenizer.pad_id
            return forward(inputs.padded_inputs(encoded, rows, length, pad_id))

        vectors = np.zeros((len(encoded), self._size(pooling)), np.float32)
        results = in_threads(compute, batches, self._num_threads)
        for rows, values in zip(batches, results, strict=True):
            vectors[rows] = values
            on_batch(len(rows))
        need = f"{self.model.name}: its vectors are not finite; its weights are damaged"
        require(np.isfinite(vectors).all(), need, error=DataError)
        return self._cut(vectors, pooling, dimension)

    def _size(self, pooling: str | None) -> int:
        """Returns `E`, before vectors are cut."""
        own = pooling is None
        return self.model.vector_size if own else self._backbone.config.hidden_size

    def _with_prompt(self, texts: list, role: str) -> list:
        names = ", ".join(filter(None, self.prompts)) or "none"
        need = f"role: the model has prompts for the roles {names}, received {role!r}"
        require(not role or role in self.prompts, need)
        return with_prompt(self.prompts.get(role, ""), texts)

    def _cut(
        self, vectors: np.ndarray, pooling: str | None, dimension: int | None
    ) -> np.ndarray:
        """Returns the first numbers of vectors, normalized if the model does it."""
        if dimension is None:
            return vectors
        predictor.check_count("dimension", dimension)
        most = vectors.shape[1]
        need = f"dimension: the vectors have {most} numbers, received {dimension}"
        require(dimension <= most, need)
        vectors = vectors[:, :dimension]
        if pooling is not None or not self.model.normalize:
            return vectors
        return of_length_1(vectors)

    def _layer_number(self, layer: int, pooling: str | None) -> int:
        """Returns the index of a layer from the front; see `__call__`."""
        last = self._backbone.config.num_hidden_layers
        is_integer = isinstance(layer, int | np.integer) and not isinstance(layer, bool)
        need = f"layer must be from {-last - 1} to {last}, received {layer!r:.80}"
        require(is_integer and -last - 1 <= layer <= last, need)
        layer = int(layer) % (last + 1)
        need = f"pooling must be one of {', '.join(POOLINGS)}, received {pooling!r:.80}"
        require(pooling in (None, *POOLINGS), need)
        if pooling == "pooled":
            need = f"pooling: 'pooled' reads layer {last}, received layer {layer}"
            require(layer == last, need)
            need = "pooling: the model has no pooler, received 'pooled'"
            require(self._backbone.pooler is not None, need)
        return layer

    def _forward(self, layer: int, pooling: str | None) -> Callable:
        """Returns the compiled model, without the layers above the requested one."""
        key = layer, pooling
        if key not in self._forwards:
            self._forwards[key] = compile_encoder(
                self.model, lambda batch: self._vectors(batch, layer, pooling), ROWS
            )
        return self._forwards[key]

    def _vectors(self, batch, layer: int, pooling: str | None):
        """Computes the vectors, float32 `[B, E]`, of a batch of tensors."""
        from keras import ops

        from albert_tf.models.embedder import pool_texts

        if pooling is None:
            is_last = layer == self._backbone.config.num_hidden_layers
            return (
                self.model(batch)
                if is_last
                else self.model.every_layer(batch, [layer])[0]
            )
        outputs = self._backbone(batch, training=False, output_hidden_states=True)
        if pooling == "pooled":
            return ops.cast(outputs["pooled_output"], "float32")
        states = outputs["hidden_states"][layer * self._backbone.config.inner_group_num]
        return pool_texts(states, batch, batch[features.PADDING_MASK], pooling)
