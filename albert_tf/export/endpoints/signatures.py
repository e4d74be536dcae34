"""Defines the signatures of an exported model, by the kind of model.

Legend: `B` batch, `T` sequence, `D` hidden, `C` labels, `V` vocabulary.
"""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.export.endpoints.choices import make_choice_signatures
from albert_tf.export.endpoints.embeddings import (
    embed_layer_signature,
    make_embedder,
)
from albert_tf.export.endpoints.exits import logits_of, make_elastic_signatures
from albert_tf.export.endpoints.fill_mask import TOP_K, fill_mask_signature
from albert_tf.export.endpoints.row_steps import run_padded
from albert_tf.export.endpoints.signature import (
    Signature,
    ints,
    strings,
    texts,
    token_request,
)
from albert_tf.export.endpoints.tags import make_tag_signatures
from albert_tf.export.endpoints.text_inputs import TextInputs, token_reader
from albert_tf.heads import all_rows, problem_type_of
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import (
    AlbertMultipleChoice,
    AlbertTokenClassifier,
    label_names,
)
from albert_tf.models.exits import ElasticClassifier

CLASSIFY_METHOD = "tensorflow/serving/classify"
_MASKED_LMS = tuple(row.load_class() for row in all_rows() if row.has_masked_lm)


def make_signatures(
    model: keras.Model,
    text_inputs: TextInputs,
    labels: Sequence[str] | None,
    top_k: int = TOP_K,
    elastic: ElasticClassifier | None = None,
) -> dict[str, Signature]:
    """Returns the signatures of a model by name.

    Those of a model that answers questions are in `questions.signatures`. A multiple
    choice model has those of `choices.make_choice_signatures`, a token classifier
    those of `tags.make_tag_signatures`, and both have the embeddings. All others have
    `serving_default(text)`, `pair(text, text_pair)` and
    `tokens(token_ids, lengths, segment_ids)`, which give the model's answer:

    * A text classifier returns `probabilities` and `logits` `[B, C]` and `label` `[B]`.
      The probabilities are independent of each other if the model's `problem_type` is
      multi-label. A regression model returns `scores`, the predicted values, and
      `logits`, both `[B, C]`.
    * Any other model returns `mean_output`, `cls_output` and `pooled_output`, all
      `[B, D]`; see `embeddings`.

    They also have `embed(text)`, which returns these, `embed_layer(text, layer)`, and
    `preprocess(text)`, which returns the model inputs. A classifier has
    `classify(inputs)` for TensorFlow Serving's Classify API, unless it is a regression
    model. A masked LM or pretrainer has
    `masked_lm(token_ids, lengths, segment_ids, mask_positions)` and `fill_mask(text)`;
    see `fill_mask`.

    Args:
        model: keras.Model. Of any kind that `heads` calls exportable but those that
            answer questions.
        text_inputs: `TextInputs`.
        labels: Sequence of str or None. Names of the `C` labels.
        top_k: int. Number of tokens that `fill_mask` returns for each mask.
        elastic: `ElasticClassifier` or None. Of a text classifier with exits: what
            computes the answers if it has a rule, which then also have `num_layers`,
            int32 `[B]`; in any case there are the signatures of
            `exits.make_elastic_signatures`. The Classify API allows no third output.

    Raises:
        UsageError: If the model is of another kind, or labels or `top_k` do not fit.
    """
    from_tokens = token_reader(model.config)
    backbone = model if isinstance(model, AlbertBackbone) else model.backbone
    embed = make_embedder(backbone)
    text, pair = strings("text"), strings("text_pair")
    embeddings = {
        "embed": Signature(lambda text: embed(text_inputs(text)), (text,), _text),
        "embed_layer": embed_layer_signature(backbone, text_inputs),
    }
    if isinstance(model, AlbertMultipleChoice):
        own = make_choice_signatures(model, text_inputs, from_tokens)
        return own | embeddings
    if isinstance(model, AlbertTokenClassifier):
        own = make_tag_signatures(model, text_inputs, labels, from_tokens)
        return own | embeddings
    has_mlm = isinstance(model, _MASKED_LMS)
    names, answer = None, embed
    if not has_mlm and model is not backbone:
        names = label_names(model, labels)
        answer = _classifier(model, tf.constant(names), logits_of(model, elastic))
    tokens = (ints("token_ids", 2), ints("lengths", 1), ints("segment_ids", 2))
    signatures = {
        "serving_default": Signature(
            lambda text: answer(text_inputs(text)), (text,), _text, every_length=True
        ),
        "pair": Signature(
            lambda text, text_pair: answer(text_inputs(text, text_pair)),
            (text, pair),
            lambda length, size: {
                "text": texts(length, size),
                "text_pair": texts(length, size),
            },
        ),
        "tokens": Signature(
            lambda token_ids, lengths, segment_ids: answer(
                from_tokens(token_ids, lengths, segment_ids)
            ),
            tokens,
            token_request,
            every_length=True,
        ),
        "preprocess": Signature(lambda text: text_inputs(text), (text,), _text),
        **embeddings,
    }
    if elastic is not None:
        by_depth = _classifier(model, tf.constant(names), elastic)
        signatures |= make_elastic_signatures(elastic, text_inputs, by_depth)
    if has_mlm:
        signatures["masked_lm"] = Signature(
            _masked_lm(model, from_tokens),
            (*tokens, ints("mask_positions", 2)),
            lambda length, size: (
                token_request(length, size)
                | {"mask_positions": np.zeros((size, 1), np.int32)}
            ),
        )
        signatures["fill_mask"] = fill_mask_signature(model, text_inputs, top_k)
    elif names and problem_type_of(model) != "regression":
        classify = _classify_api(answer, text_inputs, names)
        signatures["classify"] = Signature(classify, (strings("inputs"),))
    return signatures


def _classifier(model, labels: tf.Tensor, logits_of: Callable) -> Callable:
    problem_type = problem_type_of(model)
    multi_label = problem_type == "multi_label_classification"
    activation = tf.sigmoid if multi_label else tf.nn.softmax

    nothing = {"logits": tf.zeros([0, model.num_labels])}
    if isinstance(logits_of, ElasticClassifier):
        nothing["num_layers"] = tf.zeros([0], tf.int32)

    def answer(inputs, **by_row):
        outputs = run_padded(logits_of, inputs, nothing, **by_row)
        logits = outputs["logits"]
        if problem_type == "regression":
            return {"scores": tf.identity(logits), **outputs}
        return {
            "probabilities": activation(logits),
            **outputs,
            "label": tf.gather(labels, tf.argmax(logits, -1)),
        }

    return answer


def _masked_lm(model, from_tokens) -> Callable:
    def masked_lm(token_ids, lengths, segment_ids, mask_positions):
        inputs = from_tokens(token_ids, lengths, segment_ids)
        inside = (mask_positions >= 0) & (mask_positions < tf.shape(token_ids)[1])
        message = "mask_positions: from 0 to the columns of token_ids - 1"
        check = tf.debugging.Assert(tf.reduce_all(inside), [message])
        with tf.control_dependencies([check]):
            places = tf.identity(mask_positions)
        nothing = tf.zeros([0, tf.shape(places)[1], model.config.vocab_size])
        # A mask may be in any column.
        least = tf.shape(token_ids)[1]
        logits = run_padded(run, inputs, nothing, least=least, places=places)
        return {"logits": logits}

    def run(inputs, places):
        inputs[features.MASK_POSITIONS] = places
        outputs = model(inputs, training=False)
        return outputs["mlm_logits"] if isinstance(outputs, dict) else outputs

    return masked_lm


def _classify_api(answer, text_inputs, labels) -> Callable:
    def classify(inputs):
        """Classifies serialized `tf.Example`s with a feature `text`."""
        feature = tf.io.FixedLenFeature([], tf.string, "")
        text = tf.io.parse_example(inputs, {"text": feature})["text"]
        scores = answer(text_inputs(text))["probabilities"]
        classes = tf.repeat(tf.constant([labels]), tf.shape(scores)[0], axis=0)
        return {"classes": classes, "scores": scores}

    return classify


def _text(length: int, size: int) -> dict[str, np.ndarray]:
    return {"text": texts(length, size)}
