"""Puts our text normalization into a SentencePiece model, for KerasHub.

KerasHub's tokenizer gives raw text to SentencePiece. So what `text.normalization` does
before SentencePiece becomes part of the model's own character map, and the pieces that
the digit-comma rule splits again are marked as unused.

A character map sees no context, so final sigma becomes σ, not ς. A piece such as `,000`
may win where our rule splits `2,` afterwards. Everything else has the same ids.
"""

import functools
import io
import sys
import tempfile
import unicodedata
from collections.abc import Iterator

from albert_tf.converters.tokenizers import spiece_of
from albert_tf.text import normalization


def folded_model(tokenizer, format: str) -> bytes:
    """Returns a SentencePiece model that normalizes text by itself.

    Args:
        tokenizer: `AlbertTokenizer`. Its options decide what is normalized.
        format: str. Name of the format, for the error.

    Raises:
        UsageError: If the tokenizer is of another kind.
    """
    from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2

    model = spiece_of(tokenizer, format)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    own = SentencePieceNormalizer(model_proto=model)
    rules = _rules(own, tokenizer.do_lower_case, tokenizer.keep_accents)
    spec = proto.normalizer_spec
    built = sentencepiece_model_pb2.ModelProto.FromString(_train(rules))
    spec.precompiled_charsmap = built.normalizer_spec.precompiled_charsmap
    spec.name = "albert_tf"
    for i in tokenizer.replacements:
        proto.pieces[i].type = proto.pieces[i].UNUSED
    return proto.SerializeToString()


def _train(rules: list[tuple[str, str]]) -> bytes:
    """Trains a model on a word, for its character map."""
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.writelines(f"{_hex(old)}\t{_hex(new)}\n" for old, new in rules)
        file.flush()
        SentencePieceTrainer.train(
            sentence_iterator=iter(["a"]),
            model_writer=model,
            model_type="char",
            vocab_size=10,
            hard_vocab_limit=False,
            normalization_rule_tsv=file.name,
            minloglevel=2,
        )
    return model.getvalue()


def _rules(own, do_lower_case: bool, keep_accents: bool) -> list[tuple[str, str]]:
    """Returns what our normalization and then the model's own map make of strings.

    Args:
        own: `SentencePieceNormalizer`. The model's own map.
        do_lower_case: bool. As for `normalize_text`.
        keep_accents: bool. As for `normalize_text`.
    """
    chars = [c for c in map(chr, range(1, sys.maxunicode + 1)) if _is_text(c)]
    sequences = list(_sequences())
    sources = chars + sequences
    folded = [_fold(text, do_lower_case, keep_accents) for text in sources]
    result = dict(zip(sources, own.normalize(folded), strict=True))
    rules = [(char, result[char]) for char in chars if result[char] != char]
    for text in sequences:
        # Without a rule of its own, its characters are replaced one by one.
        if result[text] != "".join(result[char] for char in text):
            rules.append((text, result[text]))
    return rules


def _fold(text: str, do_lower_case: bool, keep_accents: bool) -> str:
    if text.isspace():
        return " "
    if not keep_accents:
        text = unicodedata.normalize("NFKD", text)
        text = normalization.combining_pattern().sub("", text)
    return text.lower() if do_lower_case else text


def _is_text(char: str) -> bool:
    return unicodedata.category(char) not in ("Cn", "Co", "Cs") or char.isspace()


@functools.lru_cache
def _sequences() -> tuple[str, ...]:
    """Returns the sequences that compose to one character, in all usual spellings."""
    return tuple(dict.fromkeys(_decomposed()))


def _decomposed() -> Iterator[str]:
    for char in map(chr, range(0x80, 0x30000)):
        if not 0xD800 <= ord(char) < 0xE000:
            full = unicodedata.normalize("NFD", char)
            if len(full) > 1:
                yield full
                # All but the last character composed: LV and T of a Hangul syllable.
                first = unicodedata.normalize("NFC", full[:-1])
                if len(first) == 1:
                    yield first + full[-1]


def _hex(text: str) -> str:
    return " ".join(f"{ord(char):X}" for char in text)
