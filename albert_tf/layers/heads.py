"""Builds the heads on top of the encoder: the masked LM and dense classifiers.

Legend: `B` batch, `T` sequence, `P` predictions, `V` vocabulary, `E` embedding, `D`
hidden, `S` starts of answers, `M` places in a span.
"""

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.configured import ConfiguredLayer
from albert_tf.layers.gathering import gather_positions, masked_spans
from albert_tf.layers.gradients import get_activation


@keras.saving.register_keras_serializable("albert_tf")
class MaskedLMHead(ConfiguredLayer):
    """Scores the vocabulary, with the token table as output weights.

    A dense layer to E dimensions, activation, layer norm, then the tied table and a
    bias (the original's `get_masked_lm_output`). The layer norm's epsilon is
    `mlm_layer_norm_eps`, or else `layer_norm_eps`.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values.

    Call arguments:
        x: `[B, P, D]`.
        word_embeddings: The tied table, `[V, E]`.

    Returns:
        float32 logits `[B, P, V]`.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.dense = self.add_dense(config.embedding_size, "dense")
        epsilon = config.mlm_layer_norm_eps or config.layer_norm_eps
        self.layer_norm = self.add_layer_norm("layer_norm", epsilon=epsilon)

    def build(self, input_shape=None):
        self.dense.build((None, None, self.config.hidden_size))
        self.layer_norm.build((None, None, self.config.embedding_size))
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.config.vocab_size,),
            initializer="zeros",
            autocast=False,  # added in float32
        )

    @property
    def activation(self) -> str:
        """Name of the activation."""
        return self.config.head_act

    def call(self, x, word_embeddings):
        x = self.layer_norm(get_activation(self.activation)(self.dense(x)))
        table = ops.cast(word_embeddings, x.dtype)
        logits = ops.matmul(x, ops.transpose(table))
        return ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")

    def compute_output_shape(self, input_shape):
        """Returns the shape of the logits, for `summary()`."""
        return (*input_shape[:2], self.config.vocab_size)


@keras.saving.register_keras_serializable("albert_tf")
class DiscriminatorHead(ConfiguredLayer):
    """Scores every token as replaced: a dense layer, activation, one output.

    ELECTRA's `discriminator_predictions`.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values.

    Call arguments:
        x: `[B, T, D]`.

    Returns:
        float32 logits `[B, T]`, above 0 for replaced.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.dense = self.add_dense(config.hidden_size, "dense")
        # Keras's default, which the original kept for this layer.
        glorot = keras.initializers.GlorotUniform(self.seed_of(1))
        self.prediction = self.add_dense(1, "prediction", kernel_initializer=glorot)

    def build(self, input_shape=None):
        for layer in (self.dense, self.prediction):
            layer.build((None, None, self.config.hidden_size))

    def call(self, x):
        x = get_activation(self.config.hidden_act)(self.dense(x))
        return ops.cast(ops.squeeze(self.prediction(x), -1), "float32")

    def compute_output_shape(self, input_shape):
        """Returns the shape of the logits, for `summary()`."""
        return tuple(input_shape[:2])


@keras.saving.register_keras_serializable("albert_tf")
class SpanBoundaryHead(MaskedLMHead):
    """Predicts the tokens of a masked span from its two neighbours (SpanBERT, 3.2).

    `[x_before ; x_after ; p]`, twice a dense layer, exact gelu and layer norm, then the
    tied table and a bias of its own: `BertPairTargetPredictionHead` of the original
    (facebookresearch/SpanBERT), whose second dense layer ends in D, as E = D there.

    Args:
        config: `AlbertConfig`.
        max_span: int. `M`. Later tokens of a span have the embedding of the last place.
        position_size: int. Size of the embedding `p` of the place in the span.
        seed: int or None. Seed of the initial values.

    Call arguments:
        x: `[B, T, D]`. All outputs of the encoder.
        positions: int `[B, P]`. Masked positions, ascending within each row.
        weights: `[B, P]`. Above 0 for the entries that are used.
        word_embeddings: The tied table, `[V, E]`.

    Returns:
        float32 logits `[B, P, V]`.
    """

    activation = "gelu"
    arguments = ("max_span", "position_size")

    def __init__(
        self,
        config: AlbertConfig,
        max_span: int = 15,
        position_size: int = 200,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(config, seed, **kwargs)
        self.max_span = max_span
        self.position_size = position_size
        self.dense_0 = self.add_dense(config.hidden_size, "dense_0", 1)
        epsilon = self.layer_norm.epsilon
        self.layer_norm_0 = self.add_layer_norm("layer_norm_0", epsilon=epsilon)

    def build(self, x_shape=None, positions_shape=None):
        D = self.config.hidden_size
        self.position_embeddings = self.add_weight(
            name="position_embeddings",
            shape=(self.max_span, self.position_size),
            initializer=self.initial_values(2),
            autocast=False,
        )
        self.dense_0.build((None, None, 2 * D + self.position_size))
        self.layer_norm_0.build((None, None, D))
        super().build()

    def call(self, x, positions, weights, word_embeddings):
        spans = masked_spans(positions, weights)
        last = ops.shape(x)[1] - 1
        before = gather_positions(x, ops.clip(spans.before, 0, last))
        after = gather_positions(x, ops.clip(spans.after, 0, last))
        places = ops.clip(spans.places, 0, self.max_span - 1)
        # The reshape makes TensorFlow's gradient dense, as for all tables.
        table = ops.reshape(self.position_embeddings, self.position_embeddings.shape)
        p = ops.cast(ops.take(table, places, axis=0), before.dtype)
        x = self.dense_0(ops.concatenate([before, after, p], axis=-1))
        x = self.layer_norm_0(get_activation(self.activation)(x))
        return super().call(x, word_embeddings)

    def compute_output_shape(self, x_shape, positions_shape):
        """Returns the shape of the logits, for `summary()`."""
        return (*positions_shape, self.config.vocab_size)


@keras.saving.register_keras_serializable("albert_tf")
class ExitHead(ConfiguredLayer):
    """Classifies from the states of one layer: a pooler, dropout and a dense layer.

    Args:
        config: `AlbertConfig`. `classifier_dropout_prob` is the rate of the dropout.
        num_labels: int. `C`.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        first: `[B, D]`. The layer's states at `[CLS]`.
        training: bool.
        seeds: `layers.dropout.StepSeeds` or None.

    Returns:
        float32 logits `[B, C]`.
    """

    arguments = ("num_labels",)

    def __init__(
        self, config: AlbertConfig, num_labels: int, seed: int | None = None, **kwargs
    ):
        super().__init__(config, seed, **kwargs)
        self.num_labels = num_labels
        self.pooler = self.add_dense(
            config.hidden_size, "pooler", activation=config.pooler_act
        )
        self.dropout = self.add_dropout(config.classifier_dropout_prob, 1)
        self.classifier = self.add_dense(num_labels, "classifier", 2)

    def build(self, input_shape=None):
        shape = (None, self.config.hidden_size)
        for layer in (self.pooler, self.dropout, self.classifier):
            layer.build(shape)

    def call(self, first, training=False, seeds=None):
        x = self.dropout(self.pooler(first), training=training, seeds=seeds)
        return ops.cast(self.classifier(x), "float32")

    def compute_output_shape(self, input_shape):
        """Returns the shape of the logits, for `summary()`."""
        return (input_shape[0], self.num_labels)


@keras.saving.register_keras_serializable("albert_tf")
class AnswerEnd(ConfiguredLayer):
    """Scores every token as the end of an answer that starts at a given token.

    `[h_t ; h_start]`, a tanh layer, layer norm, one output: the scope `end_logits` of
    the original's `create_v2_model`.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values.

    Call arguments:
        x: `[B, T, D]`.
        starts: `[B, S, D]`. The encoder's outputs at the starts.

    Returns:
        float32 logits `[B, S, T]`.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.dense_0 = self.add_dense(config.hidden_size, "dense_0")
        self.layer_norm = self.add_layer_norm("layer_norm", dtype="float32")
        self.dense_1 = self.add_dense(1, "dense_1", 1)

    def build(self, x_shape=None, starts_shape=None):
        D = self.config.hidden_size
        self.dense_0.build((None, None, 2 * D))
        self.layer_norm.build((None, None, None, D))
        self.dense_1.build((None, None, None, D))

    def call(self, x, starts):
        # [h_t ; h_start] W = h_t W_above + h_start W_below: the product with h_t does
        # not depend on the start, so five starts cost hardly more than one.
        D = self.config.hidden_size
        kernel = ops.convert_to_tensor(self.dense_0.kernel)
        of_tokens = ops.matmul(x, kernel[:D])
        of_starts = ops.matmul(starts, kernel[D:]) + self.dense_0.bias
        x = ops.tanh(ops.expand_dims(of_tokens, 1) + ops.expand_dims(of_starts, 2))
        return ops.squeeze(self.dense_1(self.layer_norm(x)), -1)

    def compute_output_shape(self, x_shape, starts_shape):
        """Returns the shape of the logits, for `summary()`."""
        return (x_shape[0], starts_shape[1], x_shape[1])


@keras.saving.register_keras_serializable("albert_tf")
class Answerability(ConfiguredLayer):
    """Scores that a question has no answer in a row.

    `[mean of h under the start's probabilities ; h_CLS]`, a tanh layer, dropout, one
    output without bias: the scope `answer_class` of the original's `create_v2_model`.

    Args:
        config: `AlbertConfig`. `classifier_dropout_prob` is the rate of the dropout.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        start: `[B, D]`. The mean of the encoder's outputs.
        first: `[B, D]`. Its output at `[CLS]`.
        training: bool.
        seeds: `layers.dropout.StepSeeds` or None.

    Returns:
        float32 logits `[B]`, high for unanswerable.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.dense_0 = self.add_dense(config.hidden_size, "dense_0", activation="tanh")
        rate = config.classifier_dropout_prob
        self.dropout = self.add_dropout(rate, 2, dtype="float32")
        self.dense_1 = self.add_dense(1, "dense_1", 1, use_bias=False)

    def build(self, start_shape=None, first_shape=None):
        self.dense_0.build((None, 2 * self.config.hidden_size))
        self.dense_1.build((None, self.config.hidden_size))

    def call(self, start, first, training=False, seeds=None):
        x = self.dense_0(ops.concatenate([start, first], axis=-1))
        x = self.dropout(x, training=training, seeds=seeds)
        return ops.squeeze(self.dense_1(x), -1)

    def compute_output_shape(self, start_shape, first_shape):
        """Returns the shape of the logits, for `summary()`."""
        return (start_shape[0],)
