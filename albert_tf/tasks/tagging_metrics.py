"""Metrics of entities, by seqeval, which is imported when first used.

Legend: `N` sentences. Tags are lists per sentence and stay so: in a list of all words,
entities of neighbouring sentences would grow together.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import tag_schemes
from albert_tf.tasks.metrics import classification_metrics

Tags = Sequence[Sequence[str]]


def entity_metrics(labels: Tags, predictions: Tags) -> dict[str, float]:
    """Returns precision, recall and F1 of entities, and accuracy of words.

    An entity is right if its words and its type are. `precision`, `recall` and `f1` are
    those of conlleval, seqeval's default: `I-` after `O` or another type starts an
    entity. In those that end in `_strict` (scheme IOB2) it does not.

    Args:
        labels: sequence of `N` sequences of str. Correct tags, in IOB2.
        predictions: sequence of `N` sequences of str. Predicted tags.

    Returns:
        dict with `f1, precision, recall, f1_strict, precision_strict, recall_strict,
        accuracy`. A ratio 0/0 is 0.

    Raises:
        DataError: If there are no words, or the numbers of words differ.
        UsageError: If seqeval is not installed.
    """
    labels, predictions = _checked(labels, predictions)
    seqeval, strict = _seqeval()
    kwargs = {"average": "micro", "zero_division": 0}
    scores = {
        "": seqeval.precision_recall_fscore_support(labels, predictions, **kwargs),
        "_strict": strict(labels, predictions, **kwargs),
    }
    values = {}
    for suffix, (precision, recall, f1, _) in scores.items():
        values[f"f1{suffix}"] = float(f1)
        values[f"precision{suffix}"] = float(precision)
        values[f"recall{suffix}"] = float(recall)
    values["accuracy"] = float(seqeval.accuracy_score(labels, predictions))
    return values


def word_metrics(labels: Tags, predictions: Tags) -> dict[str, float]:
    """Returns accuracy and macro-averaged F1, precision and recall of words' tags.

    For tags that mark no entities, such as parts of speech.

    Args:
        labels: sequence of `N` sequences of str. Correct tags.
        predictions: sequence of `N` sequences of str. Predicted tags.
    """
    labels, predictions = _checked(labels, predictions)
    values = classification_metrics(flat(labels), flat(predictions), "macro")
    return {name: values[name] for name in ("accuracy", "f1", "precision", "recall")}


def surface_f1(tokens: Tags, labels: Tags, predictions: Tags) -> float:
    """Returns the F1 of distinct entities, the second score of WNUT17.

    A frequent entity counts as often as a rare one: compared are the sets of (type,
    words) that occur anywhere (Derczynski et al., 2017, section 5).
    """
    sets = []
    for tags in (labels, predictions):
        sets.append(
            {
                (kind, tuple(words[start : end + 1]))
                for words, row in zip(tokens, tags, strict=True)
                for kind, start, end in entities(row)
            }
        )
    total = len(sets[0]) + len(sets[1])
    return 2 * len(sets[0] & sets[1]) / total if total else 0.0


def per_type(labels: Tags, predictions: Tags) -> list[dict]:
    """Returns precision, recall, F1 and support of each type of entity, sorted."""
    seqeval, _ = _seqeval()
    labels, predictions = _checked(labels, predictions)
    columns = seqeval.precision_recall_fscore_support(
        labels, predictions, average=None, zero_division=0
    )
    kinds = sorted(
        {kind for row in [*labels, *predictions] for kind, *_ in entities(row)}
    )
    names = ("precision", "recall", "f1", "support")
    return [
        {
            "label": kind,
            **dict(zip(names, (*map(float, row[:3]), int(row[3])), strict=True)),
        }
        for kind, row in zip(kinds, zip(*columns, strict=True), strict=True)
    ]


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Returns the (type, first word, last word) of the entities, as conlleval would."""
    if all(tag == tag_schemes.OUTSIDE for tag in tags):
        return []
    return _seqeval()[0].get_entities(list(tags))


@dataclasses.dataclass(frozen=True)
class EntityTables:
    """Where entities start and end, as `entities` finds them, for code without seqeval.

    Row `i` of a table is the tag of a word, column `j` that of the next one. Row `C` is
    the place before the first word of a sentence, column `C` that after the last one.

    Attributes:
        starts: bool `[C + 1, C + 1]`. Whether the next word starts an entity.
        ends: bool `[C + 1, C + 1]`. Whether an entity ends with the word.
        kinds: list of str `[C]`. Type of an entity whose last word has the tag.
    """

    starts: np.ndarray
    ends: np.ndarray
    kinds: list[str]


def entity_tables(labels: Sequence[str]) -> EntityTables:
    """Returns the tables of `C` tags.

    Args:
        labels: sequence of `C` str. Tags, none of which is empty.
    """
    seqeval, _ = _seqeval()
    tags = [(tag[0], tag[1:].split("-", 1)[-1] or "_") for tag in labels]

    def table(rule):
        rows = [*tags, (tag_schemes.OUTSIDE, "")]
        columns = [*tags, (tag_schemes.OUTSIDE, "_")]
        return np.array([[rule(a, b, x, y) for b, y in columns] for a, x in rows])

    return EntityTables(
        table(seqeval.start_of_chunk),
        table(seqeval.end_of_chunk),
        [kind for _, kind in tags],
    )


def flat(rows: Tags) -> list[str]:
    """Returns the tags of all words in one list."""
    return [tag for row in rows for tag in row]


def _seqeval():
    """Returns seqeval's lenient metrics, and the function of its strict ones."""
    try:
        from seqeval.metrics import sequence_labeling, v1
        from seqeval.scheme import IOB2
    except ImportError:
        raise UsageError(
            "metrics of entities need seqeval: pip install seqeval==1.2.2"
        ) from None
    strict = functools.partial(v1.precision_recall_fscore_support, scheme=IOB2)
    return sequence_labeling, strict


def _checked(labels: Tags, predictions: Tags) -> tuple[list, list]:
    labels, predictions = (
        [list(row) for row in labels],
        [list(row) for row in predictions],
    )
    if not any(labels) or [*map(len, labels)] != [*map(len, predictions)]:
        raise DataError(
            "labels and predictions must be lists of sentences with as many tags, at "
            f"least one, received {sum(map(len, labels))} tags of {len(labels)} "
            f"sentences and {sum(map(len, predictions))} of {len(predictions)}"
        )
    return labels, predictions
