"""A small model of every head that can be exported, and inputs of its signatures."""

import functools

import keras
import numpy as np
import tensorflow as tf

from albert_tf import heads
from albert_tf.export import manifest, warmup
from albert_tf.export.signatures import make_signatures
from albert_tf.export.text_inputs import TextInputs, specs_of
from albert_tf.tasks import saved
from albert_tf.tasks.registry import find_task
from tests import tiny

EXPORTED = [r.name for r in heads.all_rows() if r.answers != heads.REPLACED]
TEXTS = ["I loved it!", "", "a\0b", "The 1990, café's " * 30]
LABELS = ["no", "maybe", "ja ✓"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TAGS_LENGTH = 12
# What fine-tuning records with a model, by its head.
_TASKS = {
    "multiple_choice": ("race", {"max_seq_length": 20, "max_qa_length": 9}),
    **dict.fromkeys(
        ("question_answering", "beam_question_answering"),
        (
            "squad2",
            {
                "max_seq_length": 24,
                "doc_stride": 4,
                "max_query_length": 6,
                "n_best_size": 5,
                "null_threshold": 0.25,
            },
        ),
    ),
}


@functools.cache
def make_model(name: str | None) -> keras.Model:
    """Returns a model of a head as after fine-tuning; None is the encoder alone."""
    labels = {"text_classifier": LABELS, "token_classifier": TAGS}.get(name)
    sizes = {} if labels is None else {"num_labels": len(labels)}
    # What several layers share is stored once, also next to weights of their own: one
    # head with them is enough.
    own = {"depth_rank": 2, "depth_embedding": True}
    sizes |= own if name == "text_classifier" else {"num_hidden_layers": 1}
    model = tiny.make_model(name, **sizes)
    for weight in model.weights:
        if "/depth_" in weight.path:  # some begin as nothing
            weight.assign(np.random.default_rng(3).normal(0, 0.3, weight.shape))
    if labels is not None:
        model.labels = labels
    if labels is TAGS:
        model.max_seq_length = TAGS_LENGTH
    if name in _TASKS:
        task, options = _TASKS[name]
        model.task = saved.describe(find_task(task))
        model.task["options"] |= options
    return model


def functions_of(answerer, length: int, traced: bool = False) -> dict:
    """Returns the signatures of a model, without the time that saving them takes.

    Args:
        answerer: One of the classes in `inference`; its model and tokenizer are used.
        length: int. Maximum length of a row.
        traced: bool. Each is one graph, which takes time once, for many calls.
    """
    text_inputs = TextInputs(answerer.tokenizer, length)
    made = make_signatures(answerer.model, text_inputs)
    if traced:
        specs = {name: specs_of(one, answerer.model) for name, one in made.items()}
        made = {name: tf.function(one, specs[name]) for name, one in made.items()}
    return made


def requests_of(folder: str) -> dict[str, dict[str, np.ndarray]]:
    """Returns a request for every signature of an exported folder.

    A signature with an input that is not known here gets its last warm-up request.
    """
    file = f"{folder}/assets.extra/{warmup.FILE}"
    requests = dict(warmup.read_requests(file))
    for meta_graph in manifest.read_saved_model(folder).meta_graphs:
        for name, signature in meta_graph.signature_def.items():
            inputs = {k: _known(k, info) for k, info in signature.inputs.items()}
            if inputs and all(value is not None for value in inputs.values()):
                requests[name] = inputs
    return requests


def _known(name: str, info) -> np.ndarray | None:
    value = _KNOWN.get(name, _STRINGS)
    of_type = (value.dtype == object) == (info.dtype == tf.string)
    return value if of_type and value.ndim == len(info.tensor_shape.dim) else None


def example(text: str) -> bytes:
    """Returns the serialized `tf.Example` of a text."""
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
    features = tf.train.Features(feature={"text": feature})
    return tf.train.Example(features=features).SerializeToString()


_STRINGS = np.array([text.encode() for text in TEXTS], object)
_KNOWN = {
    "token_ids": np.array([[2, 7, 4, 3], [2, 9, 3, 0]], np.int32),
    "lengths": np.array([4, 3], np.int32),
    "segment_ids": np.zeros((2, 4), np.int32),
    "mask_positions": np.array([[1, 2], [1, 0]], np.int32),
    "inputs": np.array([example(text) for text in TEXTS], object),
}
