"""Puts a dense classifier on ALBERT: for texts, tokens, answer spans and choices.

Legend: `B` batch, `T` sequence, `D` hidden, `C` labels, `K` choices.
"""

import functools
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError, require
from albert_tf.heads import HEADS, problem_type_of
from albert_tf.layers.gathering import gather_places
from albert_tf.layers.heads import ExitHead
from albert_tf.models.backbone import HeadModel
from albert_tf.models.base import as_inputs


class _Classifier(HeadModel):
    """A backbone, dropout and one dense layer named `classifier`.

    `add_pooler` keeps a pooler that checkpoints of token classifiers and question
    answering may have, though nothing uses it.
    """

    head: str  # the name of its row in `HEADS`
    has_dropout = True
    arguments = ("num_labels",)

    def __init__(
        self, config: AlbertConfig, *, num_labels: int | None = None, **kwargs
    ):
        fixed = HEADS[self.head].fixed_labels
        num_labels = fixed if num_labels is None else num_labels
        fits = num_labels == fixed if fixed else (num_labels or 0) >= 1
        need = f"num_labels must be {fixed or 'positive'}"
        require(fits, need, num_labels, error=ValueError)
        self.num_labels = num_labels
        super().__init__(config, **kwargs)

    def add_layers(self):
        rate = self.config.classifier_dropout_prob if self.has_dropout else 0.0
        self.dropout = self.add_dropout(rate, 6)
        self.classifier = self.add_dense(self.num_labels, "classifier", 7)
        # Not a class attribute, which PyTorch would find before the layer.
        self.pooler_dropout = None

    def build_layers(self):
        length = () if self.reads_pooler else (None,)
        shape = (None, *length, self.config.hidden_size)
        self.dropout.build(shape)  # for summary()
        self.classifier.build(shape)

    def call(self, inputs, training=False, seeds=None):
        """Returns float32 `[B, C]`, or `[B, T, C]` without a pooler.

        With `places` in the inputs, `[*places.shape, C]`: the logits of these tokens.
        """
        inputs = as_inputs(inputs)
        run = {"training": training, "seeds": seeds}
        if self.reads_pooler:
            drop = self.pooler_dropout and functools.partial(self.pooler_dropout, **run)
            x = self.backbone(inputs, pooled_only=True, before_pooler=drop, **run)
            x = x["pooled_output"]
        else:
            x = self.backbone(inputs, **run)["sequence_output"]
            places = inputs.get(features.PLACES)
            x = x if places is None else gather_places(x, places)
        # The tokens are gathered first, so that the mask of an example does not depend
        # on its place in packed rows.
        x = self.dropout(x, training=training, seeds=seeds)
        return ops.cast(self.classifier(x), "float32")


@keras.saving.register_keras_serializable("albert_tf")
class AlbertTextClassifier(_Classifier):
    """Classifies a text or a pair of texts (the original's `create_model`).

    Args:
        config: `AlbertConfig`. `classifier_dropout_prob` is applied to the pooled
            output; in the families `roberta` and `electra` also to the pooler's input.
        num_labels: int. `C`; 1 for regression.
        num_exits: int. Number of exits, classifiers on the layers before the last:
            none, or one on each of them. `call` does not use them; see
            `models.exits.ElasticClassifier`.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        inputs: dict as for `AlbertBackbone`; for rows with several examples also
            `places` int32 `[U]`: where each starts, an index into the flattened rows.
        training, seeds: As for `AlbertBackbone`.

    Returns:
        float32 logits `[B, C]`, or `[U, C]`.

    Example:
        >>> import albert_tf, keras
        >>> model = albert_tf.from_pretrained("demo_output/pretrain/model",
        ...                                   head="text_classifier", num_labels=2)
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model.compile("adam", loss)
        >>> history = model.fit(["What a film!", "Never again."], [1, 0], verbose=0)
        >>> model.predict(["A film to see again."], verbose=0).shape
        (1, 2)
    """

    head = "text_classifier"
    reads_pooler = True

    def __init__(
        self, config: AlbertConfig, *, num_labels: int = 2, num_exits: int = 0, **kwargs
    ):
        most = config.num_hidden_layers - 1
        need = f"num_exits must be 0 or {most}, one for each layer but the last"
        require(num_exits in (0, most), need, num_exits, error=ValueError)
        self.num_exits = num_exits
        super().__init__(config, num_labels=num_labels, **kwargs)

    def add_layers(self):
        super().add_layers()
        if rate := self.config.pooler_dropout_prob:
            self.pooler_dropout = self.add_dropout(rate, 5)
        seeds = [self.seed_of(8 + layer) for layer in range(self.num_exits)]
        self.exits = [
            ExitHead(
                self.config,
                self.num_labels,
                seed,
                dtype=self.dtype_policy,
                name=f"exit_{layer}",
            )
            for layer, seed in enumerate(seeds, start=1)
        ]

    def build_layers(self):
        for layer in self.exits:
            layer.build((None, self.config.hidden_size))
        super().build_layers()

    def _targets(self, y):
        """Replaces names of classes by their indices, and checks that they exist."""
        y = super()._targets(y)
        one_class = problem_type_of(self) == "single_label_classification"
        if not (isinstance(y, np.ndarray) and one_class and y.size == len(y)):
            return y
        if y.dtype == object:  # from pandas; use the values
            y = np.array(y.tolist())
        if y.dtype.kind in "iu":
            wrong = y[(y < 0) | (y >= self.num_labels)]
            if wrong.size:
                raise UsageError(
                    f"y: labels must be from 0 to {self.num_labels - 1}, as the model "
                    f"has num_labels={self.num_labels}, received {wrong.flat[0]}"
                )
        elif y.dtype.kind in "OSUT":
            index = {name: i for i, name in enumerate(label_names(self))}
            wrong = [name for name in y.flat if name not in index]
            if wrong:
                raise UsageError(
                    f"y: must be one of the model's labels {', '.join(index)} or a "
                    f"number, received {str(wrong[0])!r} (model.labels = [...] sets "
                    "their names)"
                )
            y = np.array([index[name] for name in y.flat], "int32")
        return y

    def every_exit(self, inputs, training=False, seeds=None) -> dict:
        """Returns the logits after every layer, to train exits on.

        They are `logits`, as `call` returns them, and `exit_logits`, a tuple with the
        logits of each exit.
        """
        inputs = as_inputs(inputs)
        run = {"training": training, "seeds": seeds}
        outputs = self.backbone(inputs, output_hidden_states=True, **run)
        blocks = self.config.inner_group_num
        states = outputs["hidden_states"][blocks::blocks]
        places = inputs.get(features.PLACES)
        firsts = [
            x[:, 0] if places is None else gather_places(x, places) for x in states
        ]
        x = firsts.pop()
        x = self.pooler_dropout(x, **run) if self.pooler_dropout else x
        x = self.dropout(self.backbone.pooler(x), **run)
        return {
            "logits": ops.cast(self.classifier(x), "float32"),
            "exit_logits": tuple(
                exit_head(first, **run)
                for exit_head, first in zip(self.exits, firsts, strict=True)
            ),
        }

    def get_config(self):
        own = {"num_exits": self.num_exits} if self.num_exits else {}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("albert_tf")
class AlbertTokenClassifier(_Classifier):
    """Classifies every token; returns float32 logits `[B, T, C]`.

    Args:
        config: `AlbertConfig`.
        num_labels: int. `C`.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        inputs: dict as for `AlbertBackbone`. With `places` int32 `[U, L]`, indices into
            the flattened rows, only these tokens are classified: `[U, L, C]`.
        training, seeds: As for `AlbertBackbone`.

    Example:
        >>> import albert_tf, numpy as np
        >>> config = albert_tf.AlbertConfig()
        >>> model = albert_tf.AlbertTokenClassifier(config, num_labels=9)
        >>> model({"token_ids": np.array([[2, 13, 1, 3]])}).shape
        TensorShape([1, 4, 9])
    """

    head = "token_classifier"


@keras.saving.register_keras_serializable("albert_tf")
class AlbertQuestionAnswering(_Classifier):
    """Scores the start and end of an answer (the original's SQuAD 1.1 head).

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values.

    Call arguments:
        inputs, training, seeds: As for `AlbertBackbone`.

    Returns:
        dict with `start_logits` and `end_logits`, float32 `[B, T]`.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.AlbertQuestionAnswering(albert_tf.AlbertConfig())
        >>> # [CLS] question [SEP] text [SEP]
        >>> inputs = {"token_ids": np.array([[2, 13, 3, 45, 46, 3]])}
        >>> inputs["segment_ids"] = np.array([[0, 0, 0, 1, 1, 1]])
        >>> model(inputs)["end_logits"].shape
        TensorShape([1, 6])
    """

    head = "question_answering"
    has_dropout = False

    def call(self, inputs, training=False, seeds=None):
        logits = super().call(inputs, training, seeds)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


@keras.saving.register_keras_serializable("albert_tf")
class AlbertMultipleChoice(_Classifier):
    """Scores K choices, each a text or pair of its own (RACE, SWAG).

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        inputs: dict as for `AlbertBackbone`, every value `[B, K, T]`. Or rows
            `[B, T]`, packed or not, with `places` int32 `[U, K]`: where each choice
            starts, as an index into the flattened rows.
        training, seeds: As for `AlbertBackbone`.

    Returns:
        float32 logits `[B, K]`.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.AlbertMultipleChoice(albert_tf.AlbertConfig())
        >>> # Two choices for the same text.
        >>> token_ids = np.array([[[2, 13, 3, 45, 3], [2, 13, 3, 46, 3]]])
        >>> model({"token_ids": token_ids}).shape
        TensorShape([1, 2])
    """

    head = "multiple_choice"
    reads_pooler = True
    input_rank = 3

    def call(self, inputs, training=False, seeds=None):
        inputs = as_inputs(inputs)
        if features.PLACES in inputs:
            return super().call(inputs, training, seeds)[..., 0]
        shape = ops.shape(inputs[features.TOKEN_IDS])
        # A batch also holds labels, which no model reads.
        flat = {
            k: ops.reshape(v, (-1, shape[-1]))
            for k, v in inputs.items()
            if len(v.shape) == 3
        }
        return ops.reshape(super().call(flat, training, seeds), (-1, shape[1]))


def label_names(model: keras.Model, labels: Sequence[str] | None = None) -> list[str]:
    """Returns the names of a text classifier's classes, or the ones that replace them.

    Raises `UsageError` if the model is not a text classifier, or the number of names is
    not its number of labels.
    """
    num_labels = getattr(model, "num_labels", None)
    if num_labels is None or not getattr(model, "reads_pooler", False):
        raise UsageError(
            f"model must be an AlbertTextClassifier, received {type(model).__name__}"
        )
    labels = labels if labels is not None else getattr(model, "labels", None)
    if labels is None:
        return [f"LABEL_{i}" for i in range(num_labels)]
    if len(labels) != num_labels:
        raise UsageError(
            f"labels: expected {num_labels} names, as many as the model has labels, "
            f"received {len(labels)}"
        )
    return [str(label) for label in labels]
