"""Describes every head a model can have, one row each.

Configs, models, converters and export look a head up here instead of naming it.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf import features
from albert_tf.errors import require

# Kinds of answers: the labels of a text, the tags of its words, the place of an
# answer in it, one of several choices, the tokens at its masks, its vectors, or the
# tokens in it that were replaced.
LABELS, TAGS, SPANS = "labels", "tags", "spans"
CHOICES, TOKENS, VECTORS = "choices", "tokens", "vectors"
REPLACED = "replaced"
# Kinds of answers of fine-tuned models.
FINE_TUNED = (LABELS, TAGS, SPANS, CHOICES, VECTORS)
PROBLEM_TYPES = (
    "regression",
    "multi_label_classification",
    "single_label_classification",
)
# Roles of texts, which may have prompts.
QUERY, PASSAGE = "query", "passage"
# Ways of turning the states of a text's tokens into one vector.
POOLINGS = ("mean", "cls", "pooled", "max")
# Ways of training classifiers on every layer.
NONE, JOINT, FROZEN = EXIT_MODES = ("none", "joint", "frozen")


@dataclasses.dataclass(frozen=True)
class Head:
    """Describes the layers on top of the encoder.

    Args:
        name: str or None. Name of the head; None is the backbone alone.
        keras_class: str. Module in `albert_tf.models` and class of the model.
        answers: str. Kind of the model's answers, for example `LABELS`.
        layers: tuple of str. The layers of each part of the head that every checkpoint
            of the head must have.
        fixed_labels: int or None. Number of labels if it cannot be chosen.
        huggingface_class: str. Hugging Face's class name after the family's name; empty
            if it has none, or only some families do.
        input_rank: int. Rank of the inputs; 3 if each row holds several choices.
        also_reads: tuple of str. Inputs of the model besides tokens, segments, mask.
        options: tuple of str. Arguments of the model besides its config that are stored
            with it, unless they are 0. They are positive integers except in `PAIRS` and
            `OPTION_RULES`.
        written_as: str or None. Head as which a format writes the model, without the
            model's own parts, if it has no names for them.
        prefixes: tuple of str. Prefixes of the names of optional parts, whose number
            depends on the options.
        nets: dict. For a model that is stored as several, the head of each by the
            folder in which a run leaves it; the one that is fine-tuned comes last.
    """

    name: str | None
    keras_class: str
    answers: str
    layers: tuple[str, ...] = ()
    uses_pooler: bool = False
    fixed_labels: int | None = None
    huggingface_class: str = ""
    keras_hub_class: str | None = None
    input_rank: int = 2
    also_reads: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    written_as: str | None = None
    prefixes: tuple[str, ...] = ()
    nets: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def parts(self) -> tuple[str, ...]:
        """Returns the layers of the model apart from its backbone."""
        return tuple(dict.fromkeys(layer.partition("/")[0] for layer in self.layers))

    def owns(self, name: str) -> bool:
        """Returns whether a weight of this name belongs to one of the head's parts."""
        part = name.partition("/")[0]
        return part in self.parts or part.startswith(self.prefixes)

    @property
    def has_classifier(self) -> bool:
        """Returns whether the head is a dense layer named `classifier`."""
        return "classifier" in self.parts

    @property
    def has_labels(self) -> bool:
        """Returns whether the outputs of the head have names."""
        return self.answers in (LABELS, TAGS)

    @property
    def answers_spans(self) -> bool:
        """Returns whether it finds answers in a text, reading every token of it."""
        return self.answers == SPANS

    @property
    def has_beam(self) -> bool:
        """Returns whether it searches for the ends of an answer after its starts."""
        return "start_n_top" in self.options

    @property
    def has_masked_lm(self) -> bool:
        """Returns whether the model predicts tokens at masked positions."""
        return self.answers == TOKENS

    @property
    def has_several_rows(self) -> bool:
        """Returns whether an example may have several rows, as choices have."""
        return self.answers in (CHOICES, VECTORS)

    def load_class(self) -> type:
        """Imports and returns the Keras model."""
        module, _, name = self.keras_class.partition(".")
        return getattr(importlib.import_module(f"albert_tf.models.{module}"), name)


BACKBONE = Head(
    name=None,
    keras_class="backbone.AlbertBackbone",
    uses_pooler=True,
    huggingface_class="Model",
    keras_hub_class="AlbertBackbone",
    answers=VECTORS,
)
HEADS: dict[str, Head] = {
    head.name: head
    for head in (
        Head(
            name="pretraining",
            keras_class="masked_lm.AlbertPretrainer",
            layers=("mlm_head/dense", "sop_head"),
            uses_pooler=True,
            huggingface_class="ForPreTraining",
            answers=TOKENS,
            also_reads=(features.MASK_POSITIONS,),
        ),
        Head(
            name="masked_lm",
            keras_class="masked_lm.AlbertMaskedLM",
            layers=("mlm_head/dense",),
            huggingface_class="ForMaskedLM",
            keras_hub_class="AlbertMaskedLM",
            answers=TOKENS,
            also_reads=(features.MASK_POSITIONS,),
        ),
        Head(
            name="discriminator",
            keras_class="discriminator.AlbertDiscriminator",
            layers=("discriminator/dense", "discriminator/prediction"),
            answers=REPLACED,
        ),
        Head(
            name="span_boundary",
            keras_class="masked_lm.SpanBertPretrainer",
            layers=("mlm_head/dense", "sbo_head/dense_0", "sbo_head/dense"),
            answers=TOKENS,
            also_reads=(features.MASK_POSITIONS,),
            options=("max_span", "position_size"),
            written_as="masked_lm",
        ),
        Head(
            name="text_classifier",
            keras_class="classifiers.AlbertTextClassifier",
            layers=("classifier",),
            uses_pooler=True,
            huggingface_class="ForSequenceClassification",
            keras_hub_class="AlbertTextClassifier",
            answers=LABELS,
            options=("num_exits",),
            prefixes=("exit_",),
        ),
        Head(
            name="token_classifier",
            keras_class="classifiers.AlbertTokenClassifier",
            layers=("classifier",),
            huggingface_class="ForTokenClassification",
            answers=TAGS,
        ),
        Head(
            name="question_answering",
            keras_class="classifiers.AlbertQuestionAnswering",
            layers=("classifier",),
            fixed_labels=2,
            huggingface_class="ForQuestionAnswering",
            answers=SPANS,
        ),
        Head(
            name="beam_question_answering",
            keras_class="question_answering.AlbertBeamQuestionAnswering",
            layers=(
                "start_head",
                "end_head/dense_0",
                "end_head/layer_norm",
                "end_head/dense_1",
                "answer_head/dense_0",
                "answer_head/dense_1",
            ),
            options=("start_n_top", "end_n_top"),
            answers=SPANS,
            also_reads=(features.P_MASK,),
        ),
        Head(
            name="multiple_choice",
            keras_class="classifiers.AlbertMultipleChoice",
            layers=("classifier",),
            uses_pooler=True,
            fixed_labels=1,
            input_rank=3,
            huggingface_class="ForMultipleChoice",
            answers=CHOICES,
        ),
        Head(
            name="text_embedder",
            keras_class="embedder.AlbertTextEmbedder",
            answers=VECTORS,
            options=(
                "pooling",
                "projection_size",
                "projection_act",
                "normalize",
                "dimension",
                "prompts",
            ),
            prefixes=("projection",),
        ),
    )
}

# Options of heads that are not positive integers: what they must be, and a check.
OPTION_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "pooling": (f"one of {', '.join(POOLINGS)}", lambda x: x in POOLINGS),
    "projection_act": ("linear or tanh", lambda x: x in ("linear", "tanh")),
    "normalize": ("true or false", lambda x: type(x) is bool),
    "prompts": (
        "texts by their roles",
        lambda x: (
            isinstance(x, dict) and all(type(y) is str for y in [*x, *x.values()])
        ),
    ),
}

# How an encoder, or another model, is evaluated by its vectors.
TO_VECTORS = "convert_checkpoint --head=text_embedder makes it one that gives vectors"
MODEL, GENERATOR = "model", "generator"
# Two nets that are trained together. Each of them is stored as a separate model.
PAIRS: dict[str, Head] = {
    "electra": Head(
        name="electra",
        keras_class="electra.ElectraPretrainer",
        layers=(
            "discriminator/dense",
            "discriminator/prediction",
            "generator/mlm_head/dense",
        ),
        answers=REPLACED,
        options=(
            "generator_size",
            "generator_layers",
            "embedding_sharing",
            "share_encoder",
            "temperature",
            "disallow_correct",
        ),
        nets={GENERATOR: "masked_lm", MODEL: "discriminator"},
    )
}


def passage_role(prompts: Mapping[str, str]) -> str:
    """Returns the role of documents among prompts, as sentence-transformers does."""
    roles = ("document", PASSAGE, "corpus")
    return next((role for role in roles if role in prompts), "")


def prompts_of(prompts: Mapping[str, str]) -> tuple[str, str]:
    """Returns the text before a query, and the one before a document."""
    both = prompts.get("", "")
    return prompts.get(QUERY, both), prompts.get(passage_role(prompts), both)


def with_prompt(prompt: str, texts: Any) -> Any:
    """Returns texts, str or bytes, after a prompt; no other value is changed."""
    if not prompt:
        return texts
    texts = [texts] if isinstance(texts, str | bytes) else texts
    put = lambda x: prompt.encode() + x if isinstance(x, bytes) else x  # noqa: E731
    return [prompt + x if isinstance(x, str) else put(x) for x in texts]


def find(name: str | None) -> Head:
    """Returns the row of a head or a pair, or of the backbone for None."""
    return BACKBONE if name is None else {**HEADS, **PAIRS}[name]


def all_rows() -> tuple[Head, ...]:
    """Returns the rows of the backbone and of every head."""
    return (BACKBONE, *HEADS.values())


def answering(*answers: str) -> tuple[str, ...]:
    """Returns the names of the heads that answer one of these, for example `SPANS`."""
    return tuple(name for name, head in HEADS.items() if head.answers in answers)


def problem_type_of(model: Any) -> str:
    """Returns the meaning of a text classifier's logits.

    The model's `problem_type` determines it. Without one, a model with a single label
    is a regression model, since the softmax of a single logit is always 1. Raises
    `UsageError` if `problem_type` is something else.

    Returns:
        str. `"regression"` (the logits are the predicted values),
        `"multi_label_classification"` (a sigmoid for each label) or
        `"single_label_classification"` (a softmax over all labels).
    """
    problem_type = getattr(model, "problem_type", None)
    if problem_type is None:
        return PROBLEM_TYPES[0] if model.num_labels == 1 else PROBLEM_TYPES[2]
    expected = f"problem_type must be one of {', '.join(PROBLEM_TYPES)}"
    require(problem_type in PROBLEM_TYPES, expected, problem_type)
    return problem_type
