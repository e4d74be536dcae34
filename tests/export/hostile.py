"""Requests that no client should send: each is answered, or refused."""

import random
from collections.abc import Callable, Iterator

import numpy as np

Request = tuple[str, dict[str, np.ndarray]]
# The model of tests/tiny.py.
COLUMNS, VOCAB_SIZE = 24, 30_000
_STRINGS = ("", " ", "\0", "a\0b", "\u202e", "👩‍👩‍👧", "[CLS]", "\ufeff", "é" * 99)


def strings(value) -> np.ndarray:
    """Returns nested lists of texts, or one text, as an array of bytes."""
    found = np.array(value, object)
    flat = [x if isinstance(x, bytes) else x.encode() for x in found.reshape(-1)]
    encoded = np.empty(found.size, object)
    encoded[:] = flat
    return encoded.reshape(found.shape)


def ask(texts, signature: str = "serving_default") -> Request:
    """Returns the request of a signature that takes texts."""
    return signature, {"text": strings(texts)}


BIG = ask(["word " * 200_000, "\ufdfa" * 200_000, "x"])
MANY = ask(["a film"] * 10_000)


def requests(seed: int, count: int) -> Iterator[tuple[Request, bool]]:
    """Yields requests, and whether they must be answered."""
    rng = random.Random(seed)
    for i in range(count):
        yield _KINDS[i % len(_KINDS)](rng)


def _text(rng: random.Random) -> str:
    drawn = "".join(
        chr(rng.choice([rng.randrange(128), 0x4E2D, 0x1F600])) for _ in "12"
    )
    return rng.choice([*_STRINGS, drawn]) * rng.randrange(1, 4)


def _tokens(rng: random.Random, **changes: Callable) -> Request:
    rows, columns = rng.randrange(1, 4), rng.randrange(2, COLUMNS + 1)
    inputs = {
        "token_ids": [[rng.randrange(VOCAB_SIZE)] * columns for _ in range(rows)],
        "lengths": [rng.randrange(1, columns + 1) for _ in range(rows)],
        "segment_ids": [[rng.randrange(2)] * columns for _ in range(rows)],
    }
    inputs = {name: np.array(value, np.int32) for name, value in inputs.items()}
    for name, change in changes.items():
        inputs[name] = change(inputs[name])
    return "tokens", inputs


def _replaced(value: int) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that puts a value in the first place."""

    def change(rows):
        rows.flat[0] = value
        return rows

    return change


def _strings_of_another_rank(rng):
    text = rng.choice([_text(rng), [[_text(rng)]], [["a", "b"]], [[["a"]]]])
    return ask(text, rng.choice(["serving_default", "embed", "preprocess"])), False


def _other_types(rng):
    name = rng.choice(["token_ids", "lengths", "segment_ids"])
    kind = rng.choice([np.int64, np.float32, np.bool_])
    numbers = "serving_default", {"text": np.zeros(2, kind)}
    return rng.choice([numbers, _tokens(rng, **{name: kind})]), False


def _strange_texts(rng):
    return ask([_text(rng) for _ in range(rng.randrange(1, 5))]), True


def _bytes(rng):
    return ask([rng.randbytes(rng.randrange(1, 300)) for _ in range(3)]), True


def _pairs(rng, count=2):
    inputs = {
        "text": strings([_text(rng)] * 2),
        "text_pair": strings([_text(rng)] * count),
    }
    return ("pair", inputs), count == 2


def _unequal_pairs(rng):
    return _pairs(rng, rng.choice([1, 3]))


def _no_rows(rng):
    return ask([]), True


def _good_tokens(rng):
    return _tokens(rng), True


def _out_of_range(rng):
    bad = {"token_ids": VOCAB_SIZE, "segment_ids": 2, "lengths": COLUMNS + 1}
    name, first = rng.choice([*bad.items(), ("lengths", 0)])
    value = rng.choice([-1, first, 2**31 - 1, -(2**31)])
    return _tokens(rng, **{name: _replaced(value)}), False


def _numbers_of_another_rank(rng):
    name = rng.choice(["token_ids", "lengths", "segment_ids"])
    change = rng.choice([lambda x: x[None], lambda x: x[0], lambda x: x[:0, None]])
    return _tokens(rng, **{name: change}), False


def _numbers_of_another_shape(rng):
    name = rng.choice(["token_ids", "lengths", "segment_ids"])
    return _tokens(rng, **{name: lambda rows: np.concatenate([rows, rows[:1]])}), False


def _too_many_columns(rng):
    row = np.ones([1, rng.choice([COLUMNS + 1, 1000])], np.int32)
    inputs = {"token_ids": row, "lengths": np.array([3], np.int32), "segment_ids": row}
    return ("tokens", inputs), False


_KINDS = (
    _strings_of_another_rank,
    _other_types,
    _strange_texts,
    _bytes,
    _pairs,
    _unequal_pairs,
    _no_rows,
    _good_tokens,
    _out_of_range,
    _out_of_range,
    _out_of_range,
    _numbers_of_another_rank,
    _numbers_of_another_shape,
    _too_many_columns,
)
