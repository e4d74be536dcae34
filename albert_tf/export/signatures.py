"""Defines the signatures of an exported model, by what it answers.

Legend: `B` batch, `T` sequence, `D` hidden, `L` layers, `C` labels, `V` vocabulary, `N`
masks of all texts, `M` masks of the text with the most, `K` tokens per mask.
"""

import functools
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.converters.keras_model import head_of
from albert_tf.errors import require
from albert_tf.export.choices import make_choice_signatures
from albert_tf.export.row_steps import in_steps, run_padded
from albert_tf.export.tags import make_tag_signatures
from albert_tf.export.text_inputs import (
    TOKENS,
    Signature,
    TextInputs,
    checked,
    ints,
    strings,
    text_request,
    texts,
    token_inputs,
    token_request,
)
from albert_tf.heads import CHOICES, LABELS, TAGS, find, problem_type_of
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import label_names
from albert_tf.models.exits import ElasticClassifier
from albert_tf.text.tokenizer import MASK

CLASSIFY_METHOD = "tensorflow/serving/classify"
TOP_K = 10
TOO_LONG = -1  # instead of the number of masks
# Scores of the whole vocabulary are computed for this many masks at once. A client may
# send texts of nothing but masks, whose scores together would fill the memory.
_MASKS_AT_A_TIME = 256


def make_signatures(
    model: keras.Model,
    text_inputs: TextInputs,
    labels: Sequence[str] | None,
    top_k: int = TOP_K,
    elastic: ElasticClassifier | None = None,
) -> dict[str, Signature]:
    """Returns the signatures of a model by name.

    Those of a model that answers questions are in `questions`. A multiple choice model
    has those of `choices.make_choice_signatures`, a token classifier those of
    `tags.make_tag_signatures`, and both have the embeddings. All others have
    `serving_default(text)`, `pair(text, text_pair)` and
    `tokens(token_ids, lengths, segment_ids)`, which give the model's answer:

    * A text classifier returns `probabilities` and `logits` `[B, C]` and `label` `[B]`.
      The probabilities are independent of each other if the model's `problem_type` is
      multi-label. A regression model returns `scores`, the predicted values, and
      `logits`, both `[B, C]`.
    * Any other model returns `mean_output`, `cls_output` and `pooled_output`, all
      `[B, D]`; see `_embedder`.

    They also have `embed(text)`, which returns these, `embed_layer(text, layer)`, and
    `preprocess(text)`, which returns the model inputs. A classifier has
    `classify(inputs)` for TensorFlow Serving's Classify API, unless it is a regression
    model. A masked LM or pretrainer has
    `masked_lm(token_ids, lengths, segment_ids, mask_positions)` and `fill_mask(text)`.

    Args:
        model: keras.Model. Any model of this package but those that answer questions.
        text_inputs: `TextInputs`.
        labels: Sequence of str or None. Names of the `C` labels.
        top_k: int. Number of tokens that `fill_mask` returns for each mask.
        elastic: `ElasticClassifier` or None. Of a text classifier with exits: what
            computes the answers if it has a rule, which then also have `num_layers`,
            int32 `[B]`; in any case there are the signatures of
            `_elastic_signatures`. The Classify API allows no third output.

    Raises:
        UsageError: If the model is of another kind, or labels or `top_k` do not fit.
    """
    head = find(head_of(model))
    from_tokens = functools.partial(token_inputs, model.config)
    backbone = model if head.name is None else model.backbone
    embed = _embedder(backbone)
    text = (strings("text"),)
    embeddings = {
        "embed": Signature(lambda text: embed(text_inputs(text)), text, text_request),
        "embed_layer": _embed_layer_signature(backbone, text_inputs),
    }
    if head.answers == CHOICES:
        return make_choice_signatures(model, text_inputs, from_tokens) | embeddings
    if head.answers == TAGS:
        own = make_tag_signatures(model, text_inputs, labels, from_tokens)
        return own | embeddings
    names, answer = None, embed
    if head.answers == LABELS:
        names = label_names(model, labels)
        by_rule = elastic is not None and elastic.rule is not None
        answer = _classifier(model, names, elastic if by_rule else None)
    signatures = {
        "serving_default": Signature(
            lambda text: answer(text_inputs(text)), text, text_request, True
        ),
        "pair": Signature(
            lambda text, text_pair: answer(text_inputs(text, text_pair)),
            (*text, strings("text_pair")),
            _pair_request,
        ),
        "tokens": Signature(
            lambda token_ids, lengths, segment_ids: answer(
                from_tokens(token_ids, lengths, segment_ids)
            ),
            TOKENS,
            token_request,
            True,
        ),
        "preprocess": Signature(lambda text: text_inputs(text), text, text_request),
        **embeddings,
    }
    if elastic is not None:
        by_depth = _classifier(model, names, elastic)
        signatures |= _elastic_signatures(elastic, text_inputs, by_depth)
    if head.has_masked_lm:
        signatures["masked_lm"] = _masked_lm_signature(model, from_tokens)
        signatures["fill_mask"] = _fill_mask_signature(model, text_inputs, top_k)
    elif names and problem_type_of(model) != "regression":
        classify = _classify_api(answer, text_inputs, names)
        signatures["classify"] = Signature(classify, (strings("inputs"),))
    return signatures


def _classifier(
    model: keras.Model, labels: list[str], elastic: ElasticClassifier | None
) -> Callable:
    """Returns a function from model inputs to the answer of a text classifier.

    Args:
        model: `AlbertTextClassifier`.
        labels: list of str. Names of its labels.
        elastic: `ElasticClassifier` or None. What computes its logits instead.
    """
    problem_type = problem_type_of(model)
    multi_label = problem_type == "multi_label_classification"
    activation = tf.sigmoid if multi_label else tf.nn.softmax
    nothing = {"logits": tf.zeros([0, model.num_labels])}
    run = elastic or (lambda inputs: {"logits": model(inputs, training=False)})
    if elastic is not None:
        nothing["num_layers"] = tf.zeros([0], tf.int32)

    def answer(inputs, **by_row):
        outputs = run_padded(run, inputs, nothing, **by_row)
        logits = outputs["logits"]
        if problem_type == "regression":
            return {"scores": tf.identity(logits), **outputs}
        return {
            "probabilities": activation(logits),
            **outputs,
            "label": tf.gather(tf.constant(labels), tf.argmax(logits, -1)),
        }

    return answer


def _elastic_signatures(
    elastic: ElasticClassifier, text_inputs: TextInputs, answer: Callable
) -> dict[str, Signature]:
    """Returns `elastic(text, num_layers)` and `elastic_pair`, for pairs of texts.

    `num_layers` is int32 `[B]`, from 1 to `L`, one for each text, as a server that
    joins requests needs it. When run, they raise an InvalidArgumentError if one is out
    of range, before the model is run.

    Args:
        elastic: `ElasticClassifier`. Its rule is not used.
        text_inputs: `TextInputs`.
        answer: callable. From model inputs and `num_layers` to the answer.
    """
    most = elastic.num_layers

    def by_depth(*texts_and_depth):
        *given, num_layers = texts_and_depth
        inside = (num_layers >= 1) & (num_layers <= most)
        message = f"num_layers: from 1 to {most}, received"
        rule = (tf.reduce_all(inside), message, num_layers)
        depth = checked(num_layers, rule)
        with tf.control_dependencies([depth]):
            inputs = text_inputs(*given)
        return answer(inputs, num_layers=depth)

    def with_depths(request):
        def make(length: int, size: int) -> dict[str, np.ndarray]:
            # Every depth, so that no layer is run for the first time by a client.
            layers = np.arange(size, dtype=np.int32) * most // size + 1
            return {**request(length, size), "num_layers": layers}

        return make

    text, pair, depth = strings("text"), strings("text_pair"), ints("num_layers", 1)
    return {
        "elastic": Signature(
            lambda text, num_layers: by_depth(text, num_layers),
            (text, depth),
            with_depths(text_request),
        ),
        "elastic_pair": Signature(
            lambda text, text_pair, num_layers: by_depth(text, text_pair, num_layers),
            (text, pair, depth),
            with_depths(_pair_request),
        ),
    }


def _classify_api(answer, text_inputs, labels) -> Callable:
    def classify(inputs):
        """Classifies serialized `tf.Example`s with a feature `text`."""
        feature = tf.io.FixedLenFeature([], tf.string, "")
        text = tf.io.parse_example(inputs, {"text": feature})["text"]
        scores = answer(text_inputs(text))["probabilities"]
        classes = tf.repeat(tf.constant([labels]), tf.shape(scores)[0], axis=0)
        return {"classes": classes, "scores": scores}

    return classify


def _embedder(backbone: AlbertBackbone) -> Callable:
    """Returns a function from model inputs to the vectors of texts, float32 `[B, D]`.

    These are `mean_output`, the mean of the last layer over the real tokens,
    `cls_output`, the last layer's vector of `[CLS]`, and, if there is a pooler,
    `pooled_output`.
    """
    names = ["mean_output", "cls_output"]
    names += ["pooled_output"] if backbone.pooler is not None else []

    def run(inputs):
        outputs = backbone(inputs, training=False)
        result = _pooled(outputs["sequence_output"], inputs)
        if "pooled_output" in outputs:
            result["pooled_output"] = tf.cast(outputs["pooled_output"], tf.float32)
        return result

    return lambda inputs: run_padded(run, inputs, _no_vectors(backbone, names))


def _embed_layer_signature(
    backbone: AlbertBackbone, text_inputs: TextInputs
) -> Signature:
    """Returns `embed_layer(text, layer)`: the vectors of texts after any layer.

    `layer` is int32 `[B]`, one for each text, as a server that joins requests needs it:
    0 for the embeddings (projected to `D`), `L` for the last layer. Negative numbers
    count from the end, -1 is the last layer. The answer is `mean_output` and
    `cls_output`, float32 `[B, D]`. When run, it raises an InvalidArgumentError if a
    layer is out of range.
    """
    num_layers = backbone.config.num_hidden_layers

    def embed_layer(text, layer):
        inside = (layer >= -num_layers - 1) & (layer <= num_layers)
        message = f"layer: from {-num_layers - 1} to {num_layers}, received"
        layer = checked(layer, (tf.reduce_all(inside), message, layer))
        layer = tf.where(layer < 0, layer + num_layers + 1, layer)
        nothing = _no_vectors(backbone, ["mean_output", "cls_output"])
        return run_padded(run, text_inputs(text), nothing, layer=layer)

    def run(inputs, layer):
        outputs = backbone(inputs, training=False, output_hidden_states=True)
        states = [_pooled(x, inputs) for x in outputs["hidden_states"]]
        return {
            name: tf.gather(tf.stack([x[name] for x in states], 1), layer, batch_dims=1)
            for name in states[0]
        }

    def request(length: int, size: int) -> dict[str, np.ndarray]:
        return {**text_request(length, size), "layer": np.full(size, -1, np.int32)}

    return Signature(embed_layer, (strings("text"), ints("layer", 1)), request)


def _no_vectors(backbone, names: list[str]) -> dict[str, tf.Tensor]:
    return {name: tf.zeros([0, backbone.config.hidden_size]) for name in names}


def _pooled(x: tf.Tensor, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the vectors of the rows of `x` `[B, T, D]`, float32 `[B, D]`."""
    x = tf.cast(x, tf.float32)
    mask = tf.cast(inputs[features.PADDING_MASK], tf.float32)
    total = tf.einsum("btd,bt->bd", x, mask)
    return {
        "mean_output": total / tf.reduce_sum(mask, -1, keepdims=True),
        "cls_output": x[:, 0],
    }


def _masked_lm_signature(model: keras.Model, from_tokens: Callable) -> Signature:
    """Returns `masked_lm(token_ids, lengths, segment_ids, mask_positions)`."""

    def masked_lm(token_ids, lengths, segment_ids, mask_positions):
        inputs = from_tokens(token_ids, lengths, segment_ids)
        inside = (mask_positions >= 0) & (mask_positions < tf.shape(token_ids)[1])
        message = "mask_positions: from 0 to the columns of token_ids - 1"
        places = checked(mask_positions, (tf.reduce_all(inside), message))
        nothing = tf.zeros([0, tf.shape(places)[1], model.config.vocab_size])
        # A mask may be in any column.
        least = tf.shape(token_ids)[1]
        logits = run_padded(run, inputs, nothing, least=least, places=places)
        return {"logits": logits}

    def run(inputs, places):
        inputs[features.MASK_POSITIONS] = places
        outputs = model(inputs, training=False)
        return outputs["mlm_logits"] if isinstance(outputs, dict) else outputs

    def request(length: int, size: int) -> dict[str, np.ndarray]:
        positions = {"mask_positions": np.zeros((size, 1), np.int32)}
        return token_request(length, size) | positions

    inputs = (*TOKENS, ints("mask_positions", 2))
    return Signature(masked_lm, inputs, request)


def _fill_mask_signature(
    model: keras.Model, text_inputs: TextInputs, top_k: int
) -> Signature:
    """Returns `fill_mask(text)`, which gives the answers of `FillMask` in Python.

    A text has any number of `[MASK]`. The answer has, for each of them in the order of
    the text, the most probable tokens, best first:

    * `tokens` string, `token_ids` int32 and `scores` float32, all `[B, M, K]`. A text
      with fewer than `M` masks has `""`, -1 and 0 in the rest.
    * `num_masks` int32 `[B]`: the number of masks; 0 if the text has none; -1 if it is
      too long. Such texts, which Python refuses, do not fail the batch.

    Args:
        model: `AlbertMaskedLM` or `AlbertPretrainer`.
        text_inputs: `TextInputs`.
        top_k: int. `K`, at most the size of the vocabulary.

    Raises:
        UsageError: If `top_k` is out of range.
    """
    tokenizer = text_inputs.tokenizer
    size = tokenizer.vocab_size
    require(1 <= top_k <= size, f"top_k must be from 1 to {size}", top_k)
    names = tf.constant([tokenizer.id_to_text(i) for i in range(size)])
    nothing = (tf.zeros([0, top_k]), tf.zeros([0, top_k], tf.int32))

    def run(inputs, is_mask):
        x = model.backbone(inputs, training=False)["sequence_output"]
        is_mask = is_mask[:, : tf.shape(x)[1]]
        masked = tf.boolean_mask(x, is_mask)

        def best(numbers, width):
            del width
            table = model.backbone.word_embeddings
            # The model's table may be larger than the vocabulary.
            part = tf.gather(masked, numbers)[None]
            logits = model.mlm_head(part, table)[0, :, :size]
            return tuple(tf.math.top_k(tf.nn.softmax(logits), top_k))

        costs = tf.fill([tf.shape(masked)[0]], 16)
        return in_steps(best, costs, nothing, rows=_MASKS_AT_A_TIME)

    def fill_mask(text):
        inputs, too_long = text_inputs.masked(text)
        is_mask = (inputs[features.TOKEN_IDS] == tokenizer.mask_id) & (
            inputs[features.PADDING_MASK] == 1
        )
        counts = tf.math.count_nonzero(is_mask, 1)
        scores, token_ids = run_padded(run, inputs, nothing, counts, is_mask=is_mask)

        def dense(values, default):
            rows = tf.RaggedTensor.from_row_lengths(values, counts, validate=False)
            return rows.to_tensor(default)

        return {
            "tokens": dense(tf.gather(names, token_ids), ""),
            "token_ids": dense(token_ids, -1),
            "scores": dense(scores, 0.0),
            "num_masks": tf.where(too_long, TOO_LONG, tf.cast(counts, tf.int32)),
        }

    def request(length: int, size: int) -> dict[str, np.ndarray]:
        # With [CLS] and [SEP], a text of that many tokens in every vocabulary.
        return {"text": np.array([MASK.encode() * (length - 2)] * size, object)}

    return Signature(fill_mask, (strings("text"),), request, True)


def _pair_request(length: int, size: int) -> dict[str, np.ndarray]:
    return {"text": texts(length, size), "text_pair": texts(length, size)}
