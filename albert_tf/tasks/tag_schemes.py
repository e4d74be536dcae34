"""Tags of entities: which schemes there are, and all of them as IOB2.

IOB2: `B-type` starts an entity, `I-type` continues it, `O` is outside. IOB1, of the
original release of CoNLL-2003, starts one with `I-` unless it follows another of the
same type. IOBES and BILOU also mark the ends of entities and entities of one word.
Tags of another form, such as parts of speech, mark words, not entities.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from albert_tf.errors import DataError

OUTSIDE = "O"
_TYPED = re.compile(r"([BIESLU])-(.+)", re.DOTALL)
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
    """Returns the tags that are neither `O` nor typed, if others are typed."""
    tags = set(tags) - {OUTSIDE}
    other = {tag for tag in tags if not _TYPED.fullmatch(tag)}
    return sorted(other) if other < tags else []


def to_iob2(
    sentences: Sequence[Sequence[str]], place: Callable[[int, int], str]
) -> tuple[list[list[str]], str]:
    """Converts the tags of sentences to IOB2; tags that mark no entities are kept.

    An `I-` that starts an entity becomes `B-`, which is how conlleval, and so the
    lenient metrics, read it.

    Args:
        sentences: sequence of sequence of str. Tags of the words of each sentence.
        place: callable. Takes the indices of a sentence and of a word in it, and
            returns where they are, for messages.

    Returns:
        The tags, and a note on what was converted, which may be empty.

    Raises:
        DataError: If some tags mark entities and others are neither `O` nor of their
            form.
    """
    sentences = [list(tags) for tags in sentences]
    used = {tag for tags in sentences for tag in tags}
    if not mark_entities(used):
        return sentences, ""
    wrong = of_no_scheme(used)
    for i, tags in enumerate(sentences if wrong else ()):
        for j, tag in enumerate(tags):
            if tag in wrong:
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
    return converted, _note(used, orphans, adjacent, starts)


def _note(used: set[str], orphans: int, adjacent: int, starts: int) -> str:
    """Returns what a conversion did, in words."""
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
