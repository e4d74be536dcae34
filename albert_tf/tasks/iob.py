"""Tags of words: schemes of entities, all read as IOB2, and metrics by seqeval.

IOB2: `B-type` starts an entity, `I-type` continues it, `O` is outside. IOB1, used in
the original release of CoNLL-2003, starts an entity with `I-` unless it follows another
of the same type. IOBES and BILOU also mark the ends of entities and entities of one
word. IO has only types (`PER`). Tags may be spelled `B_type`, `b-type` or `type-B`.
Tags of any other form, such as parts of speech, mark words, not entities.

Legend: `N` sentences. Tags stay in one list per sentence: in a list of all words,
entities of neighbouring sentences would merge. seqeval is imported on first use.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from albert_tf.errors import DataError, UsageError, require
from albert_tf.tasks.metrics import classification_metrics

Tags = Sequence[Sequence[str]]

OUTSIDE = "O"
_TYPED = re.compile(r"([BIESLU])-(.+)", re.DOTALL)
# Other spellings of all tags but `O`, and how they become `B-type`. Bare types are
# accepted only together with `O` and with two letters or more, because parts of speech
# of one letter may include an `O`, too.
_SPELLINGS = (
    (re.compile(r"([BIESLU])[-–_:./|](.+)", re.DOTALL | re.IGNORECASE), r"\1-\2"),
    (re.compile(r"(.+)[-–_:./|]([BIESLU])", re.DOTALL | re.IGNORECASE), r"\2-\1"),
    (re.compile(r"([BI])[-–_:./|]?", re.IGNORECASE), r"\1"),
)
_TYPE = re.compile(r"([^\W\d][\w-]+)"), r"I-\1"
# Letters of BILOU, and the ones of IOBES that seqeval knows instead.
_SEQEVAL = {"L": "E", "U": "S"}
# S and U stand for entities of one word, E and L for the last word of an entity.
_IOB = {"B": "B", "I": "I", "S": "B", "U": "B", "E": "I", "L": "I"}


def mark_entities(tags: Iterable[str]) -> bool:
    """Returns whether tags mark entities: `B-type`, `I-type`, ..., or only B, I, O."""
    tags = set(tags)
    return (
        any(map(_TYPED.fullmatch, tags))
        or bool(tags & {"B", "I"})
        and (tags <= {"B", "I", OUTSIDE})
    )


def of_no_scheme(tags: Iterable[str]) -> list[str]:
    """Returns the tags that are neither `O` nor typed, if other tags are typed."""
    tags = set(tags) - {OUTSIDE}
    other = {tag for tag in tags if not _TYPED.fullmatch(tag)}
    return sorted(other) if other < tags else []


def standard_names(tags: Iterable[str]) -> dict[str, str]:
    """Returns `B-type` for each tag of a set that is spelled in another way.

    All tags but `O` must have the same form: `B_type`, `b-type`, `type-B` or, if there
    is an `O`, `type`, which becomes `I-type`. Otherwise nothing is renamed.
    """
    tags = set(tags)
    others = tags - {OUTSIDE, "o"}
    if not others or mark_entities(others):
        return {}
    is_mixed = any(form.fullmatch(tag) for form, _ in _SPELLINGS for tag in others)
    plain = [] if is_mixed or others == tags else [_TYPE]
    for form, written in (*_SPELLINGS, *plain):
        matches = list(filter(None, map(form.fullmatch, others)))
        if len(matches) == len(others):
            new = {match[0]: match.expand(written) for match in matches}
            names = {tag: name[0].upper() + name[1:] for tag, name in new.items()}
            return names | ({"o": OUTSIDE} if "o" in tags else {})
    return {}


def in_iob2(predicted: Tags, labels: Sequence[str]) -> Tags:
    """Converts predicted tags to IOB2 if the model's labels follow another scheme.

    The correct tags are in IOB2, and entities are compared, whatever the scheme.
    """
    others = {tag for tag in labels if tag.startswith((*"ESLU",))}
    others |= {tag for tag in labels if f"B{tag[1:]}" not in labels} - {OUTSIDE}
    if not others or not mark_entities(labels) or of_no_scheme(labels):
        return predicted
    return to_iob2(predicted, lambda sentence, word: "predictions")[0]


def to_iob2(
    sentences: Tags, place: Callable[[int, int], str]
) -> tuple[list[list[str]], str]:
    """Converts the tags of sentences to IOB2, and returns a note on what was converted.

    Tags that mark no entities are kept. An `I-` that starts an entity becomes `B-`, the
    reading of conlleval and so of the lenient metrics. Raises `DataError` at the
    `place` of a word (from the indices of sentence and word) if some tags mark entities
    and others are neither `O` nor of that form.
    """
    sentences = [list(tags) for tags in sentences]
    used = {tag for tags in sentences for tag in tags}
    names, renamed = standard_names(used), ""
    if names:
        example = min(names)
        renamed = f"tags such as {example!r:.80} are read as {names[example]!r:.80}"
        sentences = [[names.get(tag, tag) for tag in tags] for tags in sentences]
        used = {names.get(tag, tag) for tag in used}
    if not mark_entities(used):
        return sentences, ""
    misfits = of_no_scheme(used)
    for i, tags in enumerate(sentences if misfits else ()):
        for j, tag in enumerate(tags):
            if tag in misfits:
                raise DataError(
                    f"{place(i, j)}: the tag must be O, B-type or I-type, as others of "
                    f"this file, received {tag!r:.80}"
                )
    converted, orphans, adjacent, starts = [], 0, 0, 0
    for tags in sentences:
        row, before = [], OUTSIDE
        for tag in tags:
            if tag == OUTSIDE:
                row.append(tag)
                before = OUTSIDE
                continue
            prefix, kind = _IOB[tag[0]], tag[1:]
            same = before == kind
            if prefix == "B":
                starts += 1
                adjacent += same
            elif not same:
                orphans += 1
                prefix = "B"
            row.append(prefix + kind)
            # After the last word of an entity nothing continues it.
            before = OUTSIDE if tag[0] in "ESLU" else kind
        converted.append(row)
    notes = [renamed, _note(used, orphans, adjacent, starts)]
    return converted, "; ".join(filter(None, notes))


def _note(used: set[str], orphans: int, adjacent: int, starts: int) -> str:
    """Describes what a conversion did."""
    prefixes = {tag[0] for tag in used}
    if prefixes & {*"ESLU"}:
        scheme = "BILOU" if prefixes & {*"LU"} else "IOBES"
        return f"tags of {scheme} are read as IOB2"
    if not orphans:
        return ""
    if adjacent == starts:
        # In IOB1 a B- only stands between two entities of one type.
        return f"tags of IOB1 are read as IOB2 ({orphans} entities start with I-)"
    return f"tags I- that start an entity are read as B- ({orphans} of them)"


def entity_metrics(labels: Tags, predictions: Tags) -> dict[str, float]:
    """Returns precision, recall and F1 of entities, and accuracy of words.

    An entity is correct if its words and its type are. `precision`, `recall` and `f1`
    follow conlleval, seqeval's default: `I-` after `O` or another type starts an
    entity. The values with the suffix `_strict` (scheme IOB2) do not accept such
    entities. A ratio 0/0 is 0. The correct tags must be in IOB2. Raises `DataError` if
    there are no words, or the numbers of words differ, and `UsageError` if seqeval is
    not installed.
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
        ratios = {"f1": f1, "precision": precision, "recall": recall}
        values |= {f"{name}{suffix}": float(value) for name, value in ratios.items()}
    values["accuracy"] = float(seqeval.accuracy_score(labels, predictions))
    return values


def word_metrics(labels: Tags, predictions: Tags) -> dict[str, float]:
    """Returns accuracy and macro-averaged F1, precision and recall of words' tags.

    It is meant for tags that mark no entities, such as parts of speech.
    """
    labels, predictions = _checked(labels, predictions)
    values = classification_metrics(flat(labels), flat(predictions), "macro")
    return {name: values[name] for name in ("accuracy", "f1", "precision", "recall")}


def surface_f1(tokens: Tags, labels: Tags, predictions: Tags) -> float:
    """Returns the F1 of distinct entities, the second score of WNUT17.

    A frequent entity counts as much as a rare one: the sets of (type, words) that occur
    anywhere are compared (Derczynski et al., 2017, section 5).
    """
    correct, predicted = (
        {
            (kind, tuple(words[start : end + 1]))
            for words, row in zip(tokens, tags, strict=True)
            for kind, start, end in entities(row)
        }
        for tags in (labels, predictions)
    )
    total = len(correct) + len(predicted)
    return 2 * len(correct & predicted) / total if total else 0.0


def per_type(labels: Tags, predictions: Tags) -> list[dict]:
    """Returns precision, recall, F1 and support of each type of entity, sorted."""
    seqeval, _ = _seqeval()
    labels, predictions = _checked(labels, predictions)
    columns = seqeval.precision_recall_fscore_support(
        labels, predictions, average=None, zero_division=0
    )
    kinds = {kind for row in [*labels, *predictions] for kind, *_ in entities(row)}
    names = ("label", "precision", "recall", "f1", "support")
    rows = zip(sorted(kinds), *(column.tolist() for column in columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Returns (type, first word, last word) of the entities, as read by conlleval."""
    if all(tag == OUTSIDE for tag in tags):
        return []
    return _seqeval()[0].get_entities([*map(_as_iobes, tags)])


def entity_tables(labels: Sequence[str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Returns tables of entity starts and ends, for code that cannot call `entities`.

    For `C` labels, the first two are bool `[C + 1, C + 1]`: whether the next word
    starts an entity, and whether one ends with the word. Row `i` is the tag of the
    word, column `j` the tag of the next one; row `C` is the place before the first word
    of a sentence, column `C` the place after the last one. The third has the type of
    the entity whose last word has each tag.
    """
    seqeval, _ = _seqeval()
    tags = [
        (tag[0], tag[1:].split("-", 1)[-1] or "_") for tag in map(_as_iobes, labels)
    ]

    def table(decides):
        rows = [*tags, (OUTSIDE, "")]
        columns = [*tags, (OUTSIDE, "_")]
        return np.array([[decides(a, b, x, y) for b, y in columns] for a, x in rows])

    kinds = [kind for _, kind in tags]
    return table(seqeval.start_of_chunk), table(seqeval.end_of_chunk), kinds


def _as_iobes(tag: str) -> str:
    return _SEQEVAL.get(tag[0], tag[0]) + tag[1:] if _TYPED.fullmatch(tag) else tag


def flat(rows: Tags) -> list[str]:
    """Returns the tags of all words in one list."""
    return [tag for row in rows for tag in row]


def _seqeval():
    """Returns seqeval's lenient metrics, and its function for the strict ones."""
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
    labels, predictions = [*map(list, labels)], [*map(list, predictions)]
    require(
        any(labels) and [*map(len, labels)] == [*map(len, predictions)],
        "labels and predictions must be lists of sentences with as many tags, at least "
        f"one, received {len(flat(labels))} tags of {len(labels)} sentences and "
        f"{len(flat(predictions))} of {len(predictions)}",
        error=DataError,
    )
    return labels, predictions
