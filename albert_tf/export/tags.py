"""The signatures of a token classifier: words, their rows, tags and entities.

Legend: `B` texts or sentences, `W` words, `E` entities; `N` characters, `P` words and
`G` entities of all texts; `R` rows, `T` sequence, `C` tags.

They answer as Python's `TokenClassifier` does, with the rows of `tasks.tagging`. Words
are divided by white space. Punctuation and symbols before and after a word are separate
words; equal ones in a row form one word. The Unicode categories are taken from the
Python that exports the model.
"""

import functools
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.errors import require
from albert_tf.export.row_steps import in_steps, run_padded
from albert_tf.export.text_inputs import (
    MAX_TEXT_BYTES,
    STRINGS,
    Signature,
    TextInputs,
    shared,
    token_inputs,
)
from albert_tf.models.classifiers import AlbertTokenClassifier
from albert_tf.tasks import iob, saved
from albert_tf.text import inputs_graph
from albert_tf.text.normalization import in_pages
from albert_tf.text.offsets_graph import counts_before
from albert_tf.text.tokenizer_graph import as_utf8, look_up

# Classes of characters.
_LETTER, _MARK, _SPACE = 0, 1, 2


class Words(NamedTuple):
    """The words of texts.

    Attributes:
        strings: string `[P]`.
        splits: int64 `[B + 1]`. Text `i` has the words `splits[i]` to
            `splits[i + 1] - 1`.
        starts, ends: int64 `[P]`. Characters of the words, as indices of the `N`.
        characters: int32 ragged `[B, None]`. Code points of the texts.
    """

    strings: tf.Tensor
    splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    characters: tf.RaggedTensor


def tag_labels(
    model: AlbertTokenClassifier, labels: Sequence[str] | None = None
) -> list[str]:
    """Returns the names of a token classifier's tags; `labels` replaces its own.

    Raises `UsageError` if there are not as many as labels, or one is empty.
    """
    if labels is None:
        labels = saved.task_of(model, model.head, None).labels
    names = list(labels) or [f"LABEL_{i}" for i in range(model.num_labels)]
    require(
        len(names) == model.num_labels and all(names),
        f"labels: expected {model.num_labels} names, as many as the model has labels, "
        f"none of them empty, received {names!r:.200}",
    )
    return names


def make_tag_signatures(
    model: AlbertTokenClassifier, text_inputs: TextInputs, labels: Sequence[str] | None
) -> dict[str, Signature]:
    """Returns the signatures of a token classifier.

    * `serving_default(text)` finds the entities of texts, string `[B]`: `num_entities`
      int32 `[B]`; `entities` (their types), `scores` (the mean probability of their
      Places count characters (code points) of the text, in which each byte that is not
      UTF-8 counts as a space. If the tags mark no entities, every word whose tag is not
      `O` has its own entry.
    * `tag(text)` tags all words of texts: `num_words` `[B]`; `tags`, `scores`, `words`,
      `starts` and `ends`, `[B, W]`.
    * `words(words, num_words)` tags words, string `[B, W]`, of which each sentence has
      `num_words`, int32 `[B]`: `tags` and `scores`, `[B, W]`.
    * `tokens(token_ids, lengths, segment_ids)` returns `probabilities` and `logits`
      `[B, T, C]` of all tokens.

    Rows with fewer words or entities than others end in empty strings and zeros. The
    first 64 KiB of a text are read.
    """
    names = tag_labels(model, labels)
    every = functools.partial(every_word, names, left_out=None)
    find = functools.partial(every_word, names, left_out=iob.OUTSIDE)
    if iob.mark_entities(names):
        find = functools.partial(entities, iob.entity_tables(names))

    tag_all = functools.partial(tag_words, model, text_inputs)
    tag = shared(tag_all, STRINGS, tf.TensorSpec([None], tf.int64))
    split = shared(split_words, STRINGS)

    def of_texts(group, count, kinds):
        def answer(text):
            words = split(tf.strings.substr(text, 0, MAX_TEXT_BYTES))
            tags, scores = tag(words.strings, words.splits)
            return _dense(words, group(tags, scores, words.splits), count, kinds)

        return answer

    def of_words(words, num_words):
        width = tf.shape(words)[1]
        counts = tf.cast(tf.clip_by_value(num_words, 0, width), tf.int64)
        is_word = tf.sequence_mask(counts, width)
        strings = text_inputs.shortened(tf.boolean_mask(words, is_word))
        splits = tf.concat([[0], tf.cumsum(counts)], 0)
        tags, scores = tag(strings, splits)
        places = tf.where(is_word)

        def dense(values, nothing):
            filled = tf.fill(tf.shape(words), nothing)
            return tf.tensor_scatter_nd_update(filled, places, values)

        tags = tf.gather(np.array(names, object), tags)
        return {"tags": dense(tags, ""), "scores": dense(scores, 0.0)}

    def tokens(token_ids, lengths, segment_ids):
        width = tf.shape(token_ids)[1]
        logits = run_padded(
            functools.partial(model, training=False),
            token_inputs(model, token_ids, lengths, segment_ids),
            tf.zeros([0, width, model.num_labels]),
            least=width,
        )
        return {"probabilities": tf.nn.softmax(logits), "logits": logits}

    return {
        "serving_default": of_texts(find, "num_entities", "entities"),
        "tag": of_texts(every, "num_words", "tags"),
        "words": of_words,
        "tokens": tokens,
    }


class Groups(NamedTuple):
    """Runs of words that belong together.

    Attributes:
        kinds: string `[G]`.
        scores: float32 `[G]`.
        firsts, lasts: int64 `[G]`. Indices of the first and the last word.
        splits: int64 `[B + 1]`. Text `i` has the groups `splits[i]` to
            `splits[i + 1] - 1`.
    """

    kinds: tf.Tensor
    scores: tf.Tensor
    firsts: tf.Tensor
    lasts: tf.Tensor
    splits: tf.Tensor


def tag_words(
    model: AlbertTokenClassifier,
    text_inputs: TextInputs,
    words: tf.Tensor,
    splits: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the tags of words, int32 `[P]`, and their probabilities.

    `words` is string `[P]` and `splits` is int64 `[B + 1]`, words of each text.
    """
    tokenizer, length = text_inputs.tokenizer, text_inputs.max_seq_length
    graph = text_inputs.graph_tokenizer
    tokens = graph(graph.after_word(words))
    ids, places = make_rows(tokens, splits, tokenizer.unk_id, length - 2)

    def answer(numbers, width):
        del width
        inputs = inputs_graph.join_segments(
            tokenizer, tf.gather(ids, numbers), None, length
        )
        width = tf.shape(inputs[features.TOKEN_IDS], tf.int64)[1]
        words_of = tf.gather(places, numbers)
        flat = words_of.value_rowids() * width + words_of.values
        inputs[features.PLACES] = tf.cast(flat, tf.int32)[:, None]
        return model(inputs, training=False)[:, 0]

    logits = in_steps(
        answer,
        tf.cast(ids.row_lengths(), tf.int32) + 2,
        tf.zeros([0, model.num_labels]),
        places.row_lengths(),
    )
    probabilities = tf.nn.softmax(logits)
    tags = tf.argmax(probabilities, -1, tf.int32)
    return tags, tf.reduce_max(probabilities, -1)


def every_word(labels: list[str], tags, scores, splits, left_out) -> Groups:
    """Returns every word, except words of one tag, as a group whose kind is its tag."""
    is_in = tf.gather(np.array([label != left_out for label in labels]), tags)
    places = tf.where(is_in)[:, 0]
    kinds = tf.gather(np.array(labels, object), tf.gather(tags, places))
    splits = tf.gather(counts_before(is_in), splits)
    return Groups(kinds, tf.gather(scores, places), places, places, splits)


def entities(tables, tags, scores, splits) -> Groups:
    """Returns the entities in the words `[P]` of texts, like `iob.entities`."""
    starts, ends, kinds = tables
    places = tf.range(tf.size(tags, tf.int64))
    text_of = tf.repeat(tf.range(tf.size(splits) - 1), splits[1:] - splits[:-1])
    text_starts = tf.gather(splits, text_of)
    # A tag that does not exist represents the place before and after a text.
    outside = len(kinds)
    is_first = places == text_starts
    is_last = places + 1 == tf.gather(splits, text_of + 1)
    before = tf.where(is_first, outside, _before(tags, outside))
    after = tf.where(is_last, outside, _after(tags, outside))
    starts = tf.gather_nd(starts, tf.stack([before, tags], 1))
    ends = tf.gather_nd(ends, tf.stack([tags, after], 1))
    # An entity begins at the last start of the text up to its end.
    started = counts_before(starts)
    begins = tf.concat([[0], tf.where(starts)[:, 0]], 0)
    begins = tf.maximum(tf.gather(begins, started[1:]), text_starts)
    firsts, lasts = tf.boolean_mask(begins, ends), tf.where(ends)[:, 0]
    # In double precision, because it is the difference of two sums over a long text.
    total = tf.concat([[0.0], tf.cumsum(tf.cast(scores, tf.float64))], 0)
    sums = tf.gather(total, lasts + 1) - tf.gather(total, firsts)
    means = sums / tf.cast(lasts + 1 - firsts, tf.float64)
    return Groups(
        tf.gather(np.array(kinds, object), tf.gather(tags, lasts)),
        tf.cast(means, tf.float32),
        firsts,
        lasts,
        tf.gather(counts_before(ends), splits),
    )


def _dense(
    words: Words, groups: Groups, count: str, kinds: str
) -> dict[str, tf.Tensor]:
    """Returns the groups of each text in a row, under the names `count` and `kinds`."""
    first = tf.gather(words.starts, groups.firsts)
    last = tf.gather(words.ends, groups.lasts)
    places = tf.ragged.range(first, last)
    characters = places.with_values(tf.gather(words.characters.values, places.values))
    counts = groups.splits[1:] - groups.splits[:-1]
    text_starts = tf.repeat(words.characters.row_starts(), counts)

    def dense(values):
        rows = tf.RaggedTensor.from_row_splits(values, groups.splits, validate=False)
        return rows.to_tensor()

    return {
        count: tf.cast(counts, tf.int32),
        kinds: dense(groups.kinds),
        "scores": dense(groups.scores),
        "words": dense(tf.strings.unicode_encode(characters, "UTF-8")),
        "starts": dense(tf.cast(first - text_starts, tf.int32)),
        "ends": dense(tf.cast(last - text_starts, tf.int32)),
    }


def split_words(texts: tf.Tensor) -> Words:
    """Returns the words of texts, string `[B]`; bytes that are not UTF-8 are spaces."""
    characters = tf.strings.unicode_decode(as_utf8(texts), "UTF-8")
    codes, splits = characters.values, characters.row_splits
    classes = look_up(*_class_table(), codes)
    space = classes == _SPACE
    # True where a part without spaces begins.
    text_of = characters.value_rowids()
    begins = ~space & (
        _before(space, True) | (text_of != _before(text_of, np.int64(-1)))
    )
    # From the first to the last letter of each part of the text without spaces.
    place = tf.range(tf.size(codes, tf.int64))
    part = tf.cumsum(tf.cast(begins, tf.int32))
    letters = tf.where(classes == _LETTER)[:, 0]
    bounds = (letters, tf.gather(part, letters), tf.size(codes) + 1)
    first = tf.gather(tf.math.unsorted_segment_min(*bounds), part)
    last = tf.gather(tf.math.unsorted_segment_max(*bounds), part)
    inner = ~space & (first <= place) & (place <= last)
    inner_before = _before(inner, False)
    equal = ~inner_before & (codes == _before(codes, -1))
    same = tf.where(inner, inner_before, equal)
    opens = ~space & (begins | ~same)
    closes = ~space & _after(space | opens, True)
    starts = tf.where(opens)[:, 0]
    ends = tf.where(closes)[:, 0] + 1
    # Every character but white space is part of one word.
    letters = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(codes, ~space), ends - starts, validate=False
    )
    return Words(
        tf.strings.unicode_encode(letters, "UTF-8"),
        tf.gather(counts_before(opens), splits),
        starts,
        ends,
        characters,
    )


def _before(values: tf.Tensor, first) -> tf.Tensor:
    """Returns the value of the preceding character of each."""
    return tf.concat([tf.constant([first], values.dtype), values], 0)[:-1]


def _after(values: tf.Tensor, last) -> tf.Tensor:
    """Returns the value of the following character of each."""
    return tf.concat([values, tf.constant([last], values.dtype)], 0)[1:]


@functools.lru_cache
def _class_table() -> tuple[np.ndarray, np.ndarray]:
    """Returns the class of every character, for `look_up`."""
    classes = np.full(sys.maxunicode + 1, _LETTER, np.int32)
    for code in range(len(classes)):
        character = chr(code)
        if unicodedata.category(character)[0] in "PS":
            classes[code] = _MARK
        elif character.isspace():
            classes[code] = _SPACE
    return in_pages(classes)


def make_rows(
    ids: tf.RaggedTensor, splits: tf.Tensor, unk_id: int, room: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns rows of separately tokenized words, as `tagging.encode_words` does.

    Words without tokens get `unk_id`. Sentence `i` has the words `splits[i]` to
    `splits[i + 1] - 1`. Both ragged tensors are `[R, None]`: the tokens of the rows,
    without special tokens, int32; and the index of the first token of each word in its
    row with `[CLS]`, int64.
    """
    empty = ids.row_lengths() == 0
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.math.count_nonzero(empty)], unk_id), tf.cast(empty, tf.int64)
    )
    ids = tf.concat([ids[:, :room], unknown], 1)
    before = ids.row_splits  # tokens before each word, and of all words
    word_splits = tf.concat([_first_words(before, splits, room), splits[-1:]], 0)
    rows = tf.RaggedTensor.from_row_splits(before[:-1], word_splits, validate=False)
    row_splits = tf.gather(before, word_splits)
    row_starts = tf.gather(row_splits, rows.value_rowids())
    places = rows.with_values(rows.values - row_starts + 1)
    return tf.RaggedTensor.from_row_splits(
        ids.values, row_splits, validate=False
    ), places


def _first_words(before: tf.Tensor, splits: tf.Tensor, room: int) -> tf.Tensor:
    """Returns the first word of each row, int64 `[R]`, by tokens before each word."""
    ends = splits[1:]
    # For a row that starts with each word, the first word that does not fit.
    beyond = tf.searchsorted(before, before + room, side="right", out_type=tf.int64) - 1

    def step(current, is_first):
        active = current < ends
        is_first = tf.tensor_scatter_nd_update(
            is_first,
            tf.boolean_mask(current, active)[:, None],
            tf.ones([tf.math.count_nonzero(active)], tf.int32),
        )
        following = tf.minimum(tf.gather(beyond, current), ends)
        return tf.where(active, following, current), is_first

    _, is_first = tf.while_loop(
        lambda current, _: tf.reduce_any(current < ends),
        step,
        (splits[:-1], tf.zeros_like(before, tf.int32)),
    )
    return tf.where(is_first == 1)[:, 0]
