"""Folders of sentence-transformers, written and read by the library and by us."""

import csv
import os
import pathlib

import numpy as np
import pytest
from scipy.stats import spearmanr

import albert_tf
from tests.text.kinds import SENTENCEPIECE, WORDPIECE, bpe
from tests.tiny import make_model, randomize

sentence_transformers = pytest.importorskip("sentence_transformers")

pytestmark = pytest.mark.peers

SENTENCES = ["The weather is lovely today.", "It's so sunny outside!"]
SENTENCES += ["He drove to the stadium."]
# Spaces, nothing, accents, a text that is cut.
TEXTS = [*SENTENCES, " two  spaces ", "", "Café, 12,5 ÀB", "many words are cut " * 60]
ROBERTA = {"type_vocab_size": 1, "position_offset": 1, "layer_norm_eps": 1e-5}
CASES = {
    "albert": ("lower", {}, {"pooling": "mean"}),
    "albert_pooled": ("cased", {}, {"pooling": "pooled", "projection_size": 7}),
    "bert": ("wordpiece", {}, {"projection_size": 7, "projection_act": "tanh"}),
    "roberta": ("bpe", ROBERTA, {"pooling": "cls", "normalize": False}),
    "electra": ("wordpiece_cased", {}, {"pooling": "max", "dimension": 5}),
}
TOKENIZERS = {**SENTENCEPIECE, **WORDPIECE, "bpe": bpe()}


def assert_same(ours, theirs):
    """Compares vectors of both, with each prompt."""
    for role in ("query", "passage", ""):
        expected = theirs.encode(TEXTS, prompt_name=role or None)
        np.testing.assert_allclose(ours(TEXTS, role=role), expected, atol=1e-5)
    assert ours.max_seq_length == theirs.max_seq_length


@pytest.mark.parametrize("case", CASES)
def test_both_ways(case, tmp_path):
    kind, fields, options = CASES[case]
    tokenizer, family = TOKENIZERS[kind], case.partition("_")[0]
    if family != "albert":
        fields = {"family": family, "sharing": "none", "hidden_act": "gelu", **fields}
        fields |= {} if family == "electra" else {"embedding_size": 12}
    prompts = {"query": "query: ", "passage": "passage: "}
    prompts |= {"": "text: "} if case == "bert" else {}
    model = make_model(
        "text_embedder",
        vocab_size=tokenizer.vocab_size,
        prompts=prompts,
        **fields,
        **options,
    )
    model = randomize(model)
    model.max_seq_length = 15
    ours = albert_tf.Embedder(model, tokenizer)
    model.save_pretrained(
        tmp_path / "ours", format="sentence_transformers", tokenizer=tokenizer
    )
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"))
    assert_same(ours, theirs)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    assert_same(albert_tf.Embedder.from_pretrained(tmp_path / "theirs"), theirs)


def test_trained_weights():
    folder = os.environ.get("ALBERT_TF_REAL_WEIGHTS")
    if not folder:
        pytest.skip("ALBERT_TF_REAL_WEIGHTS names no folder with all-MiniLM-L6-v2")
    ours = albert_tf.Embedder.from_pretrained(folder)
    theirs = sentence_transformers.SentenceTransformer(folder)
    vectors = ours(TEXTS)
    np.testing.assert_allclose(vectors, theirs.encode(TEXTS), atol=1e-5)
    assert ours.max_seq_length == 256
    cut = ours(["and so on " * 127 + end for end in ("", "and more", "or less")])
    assert np.ptp(cut, axis=0).max() < 1e-6 < np.abs(cut[0] - vectors[0]).max()
    cosines = (vectors @ vectors.T)[[0, 0, 1], [1, 2, 2]]
    np.testing.assert_allclose(cosines, [0.6660, 0.1046, 0.1411], atol=5e-5)
    # GLUE's STS-B, if it is there, too.
    path = pathlib.Path(folder, "STS-B/dev.tsv")
    if path.exists():
        with path.open(encoding="utf-8") as f:
            rows = [*csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE)]
        one, other = (ours([r[f"sentence{i}"] for r in rows]) for i in (1, 2))
        scores = [float(row["score"]) for row in rows]
        found = spearmanr((one * other).sum(1), scores).statistic
        assert found == pytest.approx(0.8671631, abs=1e-6)
