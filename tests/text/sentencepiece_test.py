"""A SentencePiece model that would end the process is refused."""

import random

import pytest
from sentencepiece import sentencepiece_model_pb2

from albert_tf.errors import DataError
from albert_tf.storage import protobuf
from albert_tf.text import sentencepiece
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import SPIECE

TEXTS = [
    "Héllo ⅷ ﷺ wörld ① 1990, (ﬁne) «\u3000x» 한글 \0\u2581 " + "a" * 99,
    "".join(map(chr, range(32, 0xD800, 17))),
]
# Where the character map's replacements begin: behind its size and its double array.
REPLACEMENTS = 4 + 177_152
ALIKE = ["a" * n for n in range(20, 120)]
# A unit of it: a rule ends here, and the letter leads back to the root.
BACK = b"\x61\x01\0\0"


def small(*pieces, **fields):
    """Returns the released model with 400 of its pieces, and others."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(SPIECE.read_bytes())
    del proto.pieces[400:]
    for piece in pieces:
        proto.pieces.add(piece=piece, **fields)
    return proto


def mapped(at, new, field="normalizer_spec"):
    """Returns a model with other bytes at a place of a character map."""
    proto = small()
    charsmap = bytearray(proto.normalizer_spec.precompiled_charsmap)
    charsmap[at : at + len(new)] = new
    getattr(proto, field).precompiled_charsmap = bytes(charsmap)
    return proto


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (small("a" * 400_000), "piece: expected at most 7999, received 400000"),
        (small("a\0b"), r"empty or contains NUL: b'a\\x00b'"),
        (small("aaa", score=float("nan")), "the score of aaa is nan"),
        (small("aaa", type=2), "one piece for the unknown, found 2"),
        (small(*ALIKE, type=4), "begin alike: expected at most 64, received 65"),
        (mapped(0, b"\xff\xff\xff\xff"), "sizes in its character map do not fit"),
        (mapped(REPLACEMENTS, b"\xff"), "not UTF-8"),
        (mapped(REPLACEMENTS, b"x" * 60_382), "bytes of a replacement: .* at most 255"),
        # The offset of the root.
        (mapped(4, b"\0\xfe\xff\x7f"), "offset: expected at most 44287"),
        (mapped(4, b"\0\xfe\xff\x7f", "denormalizer_spec"), "offset: expected at most"),
        (mapped(4, BACK * 44_288), "begin alike: .* at most 32, received 33"),
    ],
)
def test_what_is_refused(proto, message):
    with pytest.raises(DataError, match=rf"^x: not a .* \(\d+ bytes\): .*{message}"):
        sentencepiece.check(proto.SerializeToString(), "x")


def test_what_another_parser_reads_differently():
    good, long = small().SerializeToString(), protobuf.delimited(1, b"a" * 400_000)
    # A fixed32 under the number of the text; a number that is cut to 32 bits.
    twice = protobuf.delimited(1, long + b"\x0d" + bytes(4))
    hidden = protobuf.delimited(1 + (1 << 29), long)
    for data, message in ((twice, "at most 7999"), (hidden, "SentencePiece")):
        with pytest.raises(DataError, match=message):
            sentencepiece.check(good + data, "x")


def fuzz(num_models: int) -> None:
    """Changes bytes of a good model; each is refused, or encodes and decodes texts."""
    good = small().SerializeToString()
    start = good.index(small().normalizer_spec.precompiled_charsmap)
    parts = (0, start, start + 2000, start + REPLACEMENTS, len(good))
    num_good = 0
    for seed in range(num_models):
        draw, data = random.Random(seed), bytearray(good)
        k = draw.randrange(len(parts) - 1)
        for _ in range(draw.choice([1, 2, 8, 64])):
            data[draw.randrange(*parts[k : k + 2])] = draw.choice([0, 128, seed % 256])
        try:
            tokenizer = AlbertTokenizer(bytes(data))
        except DataError:
            continue
        num_good += 1
        for text in TEXTS:
            tokenizer.decode(tokenizer.encode(text))
            tokenizer.encode_with_offsets(text)
            tokenizer.tokens(text)
    assert 0.1 < num_good / num_models < 0.9, num_good


def test_changed_bytes(run_forked):
    code = "from tests.text import sentencepiece_test as t; t.fuzz(120)"
    done = run_forked("-c", code)
    assert done.returncode == 0, done.stderr
