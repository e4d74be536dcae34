"""Compares tokenizers on texts: equal weights are of no use if the ids differ."""

import importlib.util
from collections.abc import Callable, Sequence

from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.converters.huggingface import format as huggingface
from albert_tf.converters.huggingface.peer import tokenize as tokenize_huggingface
from albert_tf.converters.keras_hub import format as keras_hub
from albert_tf.converters.keras_hub.peer import tokenize as tokenize_keras_hub

# Ordinary sentences first, then what tokenizers like to disagree on.
TEXTS = (
    "",
    "The quick brown fox jumps over the lazy dog.",
    "Berlin, Paris and New York: three cities, one day.",
    "I paid $1,000.50 in 1990, and 2,500 more in 2001, 2002, and 2003.",
    "Wir trafen uns am 3. Oktober 1990, kurz nach 12,5 Stunden Fahrt.",
    "Ärger über Öl: 'Straße' oder STRASSE?",
    "Où est passé le garçon ? À l'école, bien sûr.",
    "El niño comió piña mañana.",
    "İstanbul'da ışık ve IŞIK",
    "Zażółć gęślą jaźń",
    "Москва — столица России.",
    "ΟΔΥΣΣΕΥΣ και Οδυσσεύς",
    "今天早上，港口的船很多。",
    "東京へ行きます。ガギグ ｶﾞｷﾞ",
    "한국어 문장입니다. 각",
    "हिन्दी में एक वाक्य",
    "น้ำไม่ใช่ไฟ",
    "שָׁלוֹם עולם",
    "مرحبا بالعالم",
    "e-mail: someone@example.com, https://example.com/a_b?c=1&d=2",
    "don't won't it's O'Neil's",
    "state-of-the-art (really) \"quoted\" 'single' - dash – dash — dash",
    "10,000,000 1,2,3 2,000 ,000 5, 5,6 99,9% x2, x2,y",
    "½ ² ™ № ﬁ ﬀ Ⅳ ㎏ ①",
    "£5 €6 ¥7 …",
    "café cafe\u0301 CAFÉ CAFE\u0301",
    "a\u0300\u0301\u0302 Z\u0335a\u0336lgo",
    "👩‍👩‍👧 🇩🇪 👍🏽 ❤️ 1️⃣",
    "𝐁𝐨𝐥𝐝 𝒮𝒸𝓇𝒾𝓅𝓉 𝚺",
    "ＦＵＬＬ　ｗｉｄｔｈ １２３，４５６",
    "zero\u200bwidth\u200djoiner\ufeffmark soft\u00adhyphen",
    "  several   spaces\tand\ttabs\nand\r\nlines  ",
    "no\u00a0break\u2009thin\u3000wide",
    "bell\u0007 escape\u001b delete\u007f next\u0085line",
    "▁already▁marked ▅",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "666 1234567890 3.14159 1e-5 0x1F",
    "!!! ??? ... ,,, ;;; ### @@@ *** ___",
    "<html>&amp;</html> {json: [1, 2]} \\path\\to",
    "MiXeD CaSe iPhone NASA",
)


def compare_texts(
    part: Checkpoint, written: Checkpoint, source: str, target: str, with_peers: bool
) -> dict:
    """Tokenizes `TEXTS` on both sides of a conversion.

    Args:
        part: `Checkpoint`. The part of the source that was written.
        written: `Checkpoint`. The target, opened again.
        source: str. Path of the source.
        target: str. Path of the target.
        with_peers: bool. Whether to ask the libraries that the sides are for.

    Returns:
        dict. The number of texts, and for every column of the report the texts whose
        ids differ; empty if there is no tokenizer.
    """
    if part.tokenizer is None or written.tokenizer is None:
        return {}
    ours = part.make_tokenizer().encode_batch(TEXTS)
    theirs = written.make_tokenizer().encode_batch(TEXTS)
    differ = {"reload": _different(ours, theirs)}
    if with_peers:
        for column, checkpoint, path in (
            ("source_peer", part, source),
            ("target_peer", written, target),
        ):
            if tokenize := _find_peer(checkpoint):
                differ[column] = _different(ours, tokenize(path, TEXTS))
    return {"texts": len(TEXTS), "differ": differ}


def text_lines(texts: dict, columns: dict[str, str]) -> list[str]:
    """Returns the lines of a report on the result of `compare_texts`."""
    lines = []
    for column, differ in texts.get("differ", {}).items():
        shown = "".join(f", such as {text!r}" for text in differ[:1])
        lines.append(
            f"texts with other ids, {columns[column]}: {len(differ)} of "
            f"{texts['texts']}{shown}"
        )
    return lines


def _different(first: Sequence, second: Sequence) -> list[str]:
    rows = zip(TEXTS, first, second, strict=True)
    return [text for text, a, b in rows if list(a) != list(b)]


def _find_peer(checkpoint: Checkpoint) -> Callable | None:
    peers = {
        huggingface.NAME: ("transformers", tokenize_huggingface),
        keras_hub.NAME: ("keras_hub", tokenize_keras_hub),
    }
    module, tokenize = peers.get(checkpoint.format, (None, None))
    return tokenize if module and importlib.util.find_spec(module) else None
