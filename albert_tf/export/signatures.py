"""Defines the signatures of an exported model, according to what it answers.

Legend: `B` batch, `T` sequence, `D` hidden, `L` layers, `C` labels, `V` vocabulary, `N`
masks of all texts, `M` masks of the text with the most, `K` tokens per mask.
"""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from albert_tf import features
from albert_tf.converters.keras_model import head_of
from albert_tf.errors import require
from albert_tf.export.choices import make_choice_signatures
from albert_tf.export.questions import Answering, make_question_signatures
from albert_tf.export.row_steps import in_steps, run_padded
from albert_tf.export.tags import make_tag_signatures
from albert_tf.export.text_inputs import (
    Signature,
    TextInputs,
    checked,
    in_range,
    shared,
    token_inputs,
    within,
)
from albert_tf.heads import CHOICES, LABELS, TAGS, find, problem_type_of
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import label_names
from albert_tf.models.exits import ElasticClassifier

CLASSIFY_METHOD = "tensorflow/serving/classify"
TOP_K = 10
TOO_LONG = -1  # instead of the number of masks
# Scores of the whole vocabulary are computed for this many masks at once. The scores of
# texts that consist of masks alone would otherwise fill the memory.
_MASKS_AT_A_TIME = 256


def make_signatures(
    model: keras.Model,
    text_inputs: TextInputs,
    labels: Sequence[str] | None = None,
    top_k: int = TOP_K,
    elastic: ElasticClassifier | None = None,
    answering: Answering | None = None,
) -> dict[str, Signature]:
    """Returns the signatures of a model by name.

    For a model that answers questions see `questions.make_question_signatures`, for
    multiple choice `choices.make_choice_signatures`, and for a token classifier
    `tags.make_tag_signatures`; the last two also have the embeddings. All others have
    `serving_default(text)`, `pair(text, text_pair)` and
    `tokens(token_ids, lengths, segment_ids)`, which return the model's answer:

    * A text classifier returns `probabilities` and `logits` `[B, C]` and `label` `[B]`.
      The probabilities are independent of each other if the model's `problem_type` is
      multi-label. A regression model returns `scores`, the predicted values, and
      `logits`, both `[B, C]`.
    * An embedder returns `embedding` `[B, E]`, the vector it was trained to give. It
      has no `pair`, and for each of its prompts `embed_ROLE(text)`.
    * Any other model returns `mean_output`, `cls_output` and `pooled_output`, all
      `[B, D]`; see `_embedder`.

    They also have `embed(text)`, which returns these, `embed_layer(text, layer)`, and
    `preprocess(text)`, which returns the model inputs. A classifier has
    `classify(inputs)` for TensorFlow Serving's Classify API, unless it is a regression
    model. A masked LM or pretrainer has `masked_lm(token_ids, lengths, segment_ids,
    mask_positions)` and `fill_mask(text)`. Raises `UsageError` if labels or `top_k` do
    not fit.

    Args:
        elastic: `ElasticClassifier` or None. For a text classifier with exits. If it
            has a rule, it computes the answers, which then also have `num_layers`,
            int32 `[B]`; in any case there are the signatures of
            `_elastic_signatures`. The Classify API allows no third output.
    """
    head = find(head_of(model))
    if head.answers_spans:
        return make_question_signatures(model, text_inputs, answering)
    backbone = model if head.name is None else model.backbone
    embed = _shared(_embedder(backbone))
    embeddings = {
        "embed": lambda text: embed(text_inputs(text)),
        "embed_layer": _layer_embedder(backbone, text_inputs),
    }
    if head.answers == CHOICES:
        return make_choice_signatures(model, text_inputs) | embeddings
    if head.answers == TAGS:
        return make_tag_signatures(model, text_inputs, labels) | embeddings
    names, answer = None, embed
    if head.name == "text_embedder":
        answer = _shared(_trained_embedder(model))
        embeddings |= _by_role(model, answer, text_inputs)
    if head.answers == LABELS:
        names = label_names(model, labels)
        by_rule = elastic is not None and elastic.rule is not None
        answer = _shared(_classifier(model, names, elastic if by_rule else None))
    signatures = {
        "serving_default": lambda text: answer(text_inputs(text)),
        "pair": lambda text, text_pair: answer(text_inputs(text, text_pair)),
        "tokens": lambda token_ids, lengths, segment_ids: answer(
            token_inputs(model, token_ids, lengths, segment_ids)
        ),
        "preprocess": lambda text: text_inputs(text),
        **embeddings,
    }
    if head.name == "text_embedder":
        del signatures["pair"]  # its vectors belong to single texts
        signatures["serving_default"] = embeddings["embed"]  # with its prompt
    if elastic is not None:
        by_depth = _classifier(model, names, elastic)
        signatures |= _elastic_signatures(elastic, text_inputs, by_depth)
    if head.has_masked_lm:
        signatures["masked_lm"] = _masked_lm(model)
        signatures["fill_mask"] = _fill_mask(model, text_inputs, top_k)
    elif names and problem_type_of(model) != "regression":
        signatures["classify"] = _classify_api(answer, text_inputs, names)
    return signatures


def _shared(answer: Callable) -> Callable:
    """Returns a function of model inputs; see `shared`."""
    inputs = dict.fromkeys(features.ROWS, tf.TensorSpec([None, None], tf.int32))
    return shared(answer, inputs)


def _classifier(
    model: keras.Model, labels: list[str], elastic: ElasticClassifier | None
) -> Callable:
    """Returns a function from inputs to answers, by `elastic` if there is one."""
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
    """Returns `elastic(text, num_layers)` and `elastic_pair`, for pairs of texts."""
    # num_layers is int32 [B], one for each text, because a server may join requests. If
    # one is not in 1 to L, an InvalidArgumentError is raised before the model is run.

    def by_depth(num_layers, *texts):
        depth = in_range("num_layers", num_layers, 1, elastic.num_layers)
        with tf.control_dependencies([depth]):
            inputs = text_inputs(*texts)
        return answer(inputs, num_layers=depth)

    return {
        "elastic": lambda text, num_layers: by_depth(num_layers, text),
        "elastic_pair": lambda text, text_pair, num_layers: by_depth(
            num_layers, text, text_pair
        ),
    }


def _classify_api(
    answer: Callable, text_inputs: TextInputs, labels: list[str]
) -> Signature:
    def classify(inputs):
        """Classifies serialized `tf.Example`s, each of which needs a feature `text`."""
        # Without a default: an Example with `sentence` is not an empty text.
        feature = tf.io.FixedLenFeature([], tf.string)
        text = tf.io.parse_example(inputs, {"text": feature})["text"]
        scores = answer(text_inputs(text))["probabilities"]
        classes = tf.repeat(tf.constant([labels]), tf.shape(scores)[0], axis=0)
        return {"classes": classes, "scores": scores}

    return classify


def _embedder(backbone: AlbertBackbone) -> Callable:
    """Returns a function from model inputs to vectors of texts, float32 `[B, D]`."""
    names = ["mean_output", "cls_output"]
    names += ["pooled_output"] if backbone.pooler is not None else []

    def run(inputs):
        outputs = backbone(inputs, training=False)
        result = _pooled(outputs["sequence_output"], inputs)
        if "pooled_output" in outputs:
            result["pooled_output"] = tf.cast(outputs["pooled_output"], tf.float32)
        return result

    return lambda inputs: run_padded(run, inputs, _no_vectors(backbone, names))


def _trained_embedder(model: keras.Model) -> Callable:
    """Returns a function from model inputs to `embedding`, float32 `[B, E]`."""
    nothing = {"embedding": tf.zeros([0, model.vector_size])}
    run = lambda inputs: {"embedding": model(inputs, training=False)}  # noqa: E731
    return lambda inputs: run_padded(run, inputs, nothing)


def _by_role(
    model: keras.Model, answer: Callable, text_inputs: TextInputs
) -> dict[str, Signature]:
    """Returns `embed(text)`, and for every role with a prompt `embed_ROLE(text)`."""

    def embed_with(prompt):
        return lambda text: answer(text_inputs(tf.strings.join([prompt, text])))

    prompts = {"": "", **model.prompts}
    return {
        f"embed_{role}" if role else "embed": embed_with(prompt)
        for role, prompt in prompts.items()
    }


def _layer_embedder(backbone: AlbertBackbone, text_inputs: TextInputs) -> Signature:
    """Returns `embed_layer(text, layer)`: the vectors of texts after any layer."""
    # layer is int32 [B], one for each text, because a server may join requests: 0 for
    # the embeddings, projected to D; -1 for the last layer. An InvalidArgumentError is
    # raised at run time if one is out of range.
    num_layers = backbone.config.num_hidden_layers

    def embed_layer(text, layer):
        layer = in_range("layer", layer, -num_layers - 1, num_layers)
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

    return embed_layer


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


def _masked_lm(model: keras.Model) -> Signature:
    """Returns `masked_lm(token_ids, lengths, segment_ids, mask_positions)`."""

    def masked_lm(token_ids, lengths, segment_ids, mask_positions):
        inputs = token_inputs(model, token_ids, lengths, segment_ids)
        # A mask may be in any column.
        width = tf.shape(token_ids)[1]
        message = "mask_positions: from 0 to the columns of token_ids - 1"
        places = checked(mask_positions, (within(mask_positions, 0, width), message))
        nothing = tf.zeros([0, tf.shape(places)[1], model.config.vocab_size])
        logits = run_padded(run, inputs, nothing, least=width, places=places)
        return {"logits": logits}

    def run(inputs, places):
        inputs[features.MASK_POSITIONS] = places
        outputs = model(inputs, training=False)
        return outputs["mlm_logits"] if isinstance(outputs, dict) else outputs

    return masked_lm


def _fill_mask(model: keras.Model, text_inputs: TextInputs, top_k: int) -> Signature:
    """Returns `fill_mask(text)`, which answers like `FillMask` in Python."""
    # For each mask in the order of the text, the most probable tokens, best first:
    # tokens string, token_ids int32 and scores float32, all [B, M, K], where missing
    # masks have "", -1 and 0; num_masks int32 [B], -1 for a text that is too long,
    # which does not fail the batch.
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

    return fill_mask
