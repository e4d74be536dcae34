"""Requests that no client should send, each with the HTTP status it must get."""

import base64
import json
import random
from collections.abc import Callable, Iterator

BIG = {"inputs": {"text": ["word " * 200_000, "\ufdfa" * 200_000, "x"]}}
MANY = {"inputs": {"text": ["a film"] * 10_000}}
# The model of tests/tiny.py.
COLUMNS, VOCAB_SIZE = 24, 30_000
_STRINGS = ("", " ", "\0", "a\0b", "\u202e", "👩‍👩‍👧", "[CLS]", "\ufeff", "é" * 99)


def requests(seed: int, count: int) -> Iterator[tuple[bytes, int]]:
    """Yields (body, status)."""
    rng = random.Random(seed)
    for i in range(count):
        body, status = _KINDS[i % len(_KINDS)](rng)
        yield body if isinstance(body, bytes) else json.dumps(body).encode(), status


def _text(rng: random.Random) -> str:
    drawn = "".join(
        chr(rng.choice([rng.randrange(128), 0x4E2D, 0x1F600])) for _ in "12"
    )
    return rng.choice([*_STRINGS, drawn]) * rng.randrange(1, 4)


def _tokens(rng: random.Random, **changes) -> dict:
    rows, columns = rng.randrange(1, 4), rng.randrange(2, COLUMNS + 1)
    inputs = {
        "token_ids": [[rng.randrange(VOCAB_SIZE)] * columns for _ in range(rows)],
        "lengths": [rng.randrange(1, columns + 1) for _ in range(rows)],
        "segment_ids": [[rng.randrange(2)] * columns for _ in range(rows)],
    }
    for name, change in changes.items():
        inputs[name] = change(inputs[name])
    return {"signature_name": "tokens", "inputs": inputs}


def _replaced(value) -> Callable[[list], list]:
    """Returns a function that puts a value in the first place of a row or list."""

    def change(rows):
        if isinstance(rows[0], list):
            return [[value, *rows[0][1:]], *rows[1:]]
        return [value, *rows[1:]]

    return change


def _not_json(rng):
    whole = json.dumps({"instances": [_text(rng)]}).encode()
    depth = rng.randrange(2000, 100_000)
    cut = whole[: rng.randrange(len(whole))]
    return rng.choice([cut, b"[" * depth, rng.randbytes(20), b'{"a":' * depth]), 400


def _not_a_request(rng):
    text = [_text(rng)]
    bodies = [
        *([], 1, "x", None, {}, [text], {"instance": text}),
        {"instances": text, "inputs": {"text": text}},
        *({"instances": x} for x in ([], None, 1, "x", {}, {"text": text})),
    ]
    return rng.choice(bodies), 400


def _no_such_signature(rng):
    name = rng.choice([_text(rng) + "?", 1, None, [], "x" * 100_000, "__init__"])
    return {"signature_name": name, "instances": ["a"]}, 400


def _other_names(rng):
    inputs = rng.choice([{}, {"texts": ["a"]}, {"text": ["a"], _text(rng): ["b"]}])
    name = rng.choice(["serving_default", "embed"])
    return {"signature_name": name, "inputs": inputs}, 400


def _a_missing_input(rng):
    body = {"signature_name": "pair", "inputs": {"text": [_text(rng)]}}
    tokens = _tokens(rng)
    del tokens["inputs"][rng.choice(list(tokens["inputs"]))]
    return rng.choice([body, tokens]), 400


def _strings_of_another_rank(rng):
    text = rng.choice([_text(rng), [[_text(rng)]], [["a", "b"]], [[["a"]]], [[]]])
    name = rng.choice(["serving_default", "embed", "preprocess"])
    return {"signature_name": name, "inputs": {"text": text}}, 400


def _not_strings(rng):
    value = rng.choice([1, 1.5, True, None, {}, {"b64": 1}, {"b64": "?"}, {"a": "b"}])
    return {"inputs": {"text": ["a", value]}}, 400


def _different_rows(rng):
    rows = [{"text": "a"}, rng.choice([{"texts": "b"}, {}, "b", {"text": ["b"]}, 1])]
    return {"instances": rows}, 400


def _half_a_character(rng):
    return b'{"instances": ["a\\ud8%02x"]}' % rng.randrange(256), 400


def _strange_texts(rng):
    texts = [_text(rng) for _ in range(rng.randrange(1, 5))]
    return {"instances": texts}, 200


def _bytes(rng):
    texts = [rng.randbytes(rng.randrange(1, 300)) for _ in range(3)]
    return {"instances": [{"b64": base64.b64encode(x).decode()} for x in texts]}, 200


def _bytes_in_json(rng):
    data = rng.randbytes(30).translate(None, bytes(range(32)) + b'"\\')
    return b'{"instances": ["' + data + b'"]}', 200


def _pairs(rng):
    pair = {"text": [_text(rng)] * 2, "text_pair": [_text(rng)] * 2}
    return {"signature_name": "pair", "inputs": pair}, 200


def _unequal_pairs(rng):
    pair = {"text": ["a"] * 2, "text_pair": ["b"] * rng.choice([1, 3])}
    return {"signature_name": "pair", "inputs": pair}, 400


def _no_rows(rng):
    return {"inputs": {"text": []}}, 200


def _good_tokens(rng):
    return _tokens(rng), 200


def _ids_out_of_range(rng):
    value = rng.choice([-1, VOCAB_SIZE, 2**31 - 1, -(2**31)])
    return _tokens(rng, token_ids=_replaced(value)), 400


def _segments_out_of_range(rng):
    value = rng.choice([-1, 2, 2**31 - 1])
    return _tokens(rng, segment_ids=_replaced(value)), 400


def _lengths_beyond_the_row(rng):
    value = rng.choice([0, -1, COLUMNS + 1, 2**31 - 1, -(2**31)])
    return _tokens(rng, lengths=_replaced(value)), 400


def _numbers_of_another_type(rng):
    value = rng.choice(["2", 2.5, None, [2], {}, 2**31, -(2**63), 10**30])
    name = rng.choice(["token_ids", "lengths", "segment_ids"])
    return _tokens(rng, **{name: _replaced(value)}), 400


def _numbers_of_another_rank(rng):
    name = rng.choice(["token_ids", "lengths", "segment_ids"])
    change = rng.choice([lambda x: [x], lambda x: x[0], lambda x: [], lambda x: [[]]])
    return _tokens(rng, **{name: change}), 400


def _numbers_of_another_shape(rng):
    name = rng.choice(["token_ids", "lengths", "segment_ids"])
    return _tokens(rng, **{name: lambda rows: [*rows, rows[0]]}), 400


def _too_many_columns(rng):
    row = [[1] * rng.choice([COLUMNS + 1, 1000])]
    inputs = {"token_ids": row, "lengths": [3], "segment_ids": row}
    return {"signature_name": "tokens", "inputs": inputs}, 400


_KINDS = (
    _not_json,
    _not_a_request,
    _no_such_signature,
    _other_names,
    _a_missing_input,
    _strings_of_another_rank,
    _not_strings,
    _different_rows,
    _half_a_character,
    _strange_texts,
    _bytes,
    _bytes_in_json,
    _pairs,
    _unequal_pairs,
    _no_rows,
    _good_tokens,
    _ids_out_of_range,
    _segments_out_of_range,
    _lengths_beyond_the_row,
    _numbers_of_another_type,
    _numbers_of_another_rank,
    _numbers_of_another_shape,
    _too_many_columns,
)
