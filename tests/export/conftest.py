"""Fixtures that the tests of exported models share."""

import json

import pytest

from tests.imports import ROOT


@pytest.fixture(scope="session")
def byte_bpe():
    """A tokenizer of byte-level BPE whose mask is `<mask>`."""
    from albert_tf.text.byte_bpe import ByteBPETokenizer
    from albert_tf.text.train import train_tokenizer

    strings = ROOT / "tests/golden/tokenization/strings.json"
    texts = [item["text"] for item in json.loads(strings.read_text())]
    data = train_tokenizer(texts, model_type="byte_bpe", vocab_size=400, progress=False)
    return ByteBPETokenizer(data.replace(b"[MASK]", b"<mask>"))
