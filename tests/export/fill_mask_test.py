"""`fill_mask(text)` of an exported model gives the answers of `FillMask`."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from albert_tf.errors import UsageError
from albert_tf.export import signatures, text_inputs, warmup
from albert_tf.export.signatures import make_signatures
from albert_tf.export.text_inputs import TextInputs, specs_of
from albert_tf.inference.fill_mask import FillMask
from albert_tf.models.masked_lm import AlbertMaskedLM, AlbertPretrainer
from tests.tiny import tiny_config

CONFIG = tiny_config(num_hidden_layers=1)
K = 3


def _serve(model, tokenizer, traced=True):
    length = model.config.max_position_embeddings
    made = make_signatures(model, TextInputs(tokenizer, length), top_k=K)
    function = made["fill_mask"]
    if traced:
        function = tf.function(function, specs_of(function, model))

    def serve(texts):
        outputs = function(tf.constant(texts, tf.string, [len(texts)]))
        return {name: value.numpy() for name, value in outputs.items()}

    return serve


@pytest.fixture(scope="module", params=["sentencepiece", "byte_bpe"])
def both(request):
    """`FillMask` and what is served, for one kind of tokenizer."""
    if request.param == "byte_bpe":
        tokenizer = request.getfixturevalue("byte_bpe")
        model = AlbertMaskedLM(CONFIG, seed=1)
    else:
        tokenizer = request.getfixturevalue("tokenizer")
        model = AlbertPretrainer(CONFIG, seed=1)
    return FillMask(model, tokenizer), _serve(model, tokenizer)


def _in_python(fill_mask, text):
    """The candidates for each mask by Python, and the number of masks as served."""
    try:
        masks = fill_mask(text, top_k=2 * K)
    except UsageError as e:
        assert "expected at most" in str(e) or "in it" in str(e)
        return [], -1 if "expected at most" in str(e) else 0
    masks = [masks] if isinstance(masks[0], dict) else masks
    return masks, len(masks)


def _assert_same(both, texts):
    fill_mask, serve = both
    got = serve([text.encode() for text in texts])
    expected = [_in_python(fill_mask, text) for text in texts]
    assert got["num_masks"].tolist() == [count for _, count in expected]
    widest = max([0, *(count for _, count in expected)])
    assert got["scores"].shape == (len(texts), widest, K)
    for i, (masks, count) in enumerate(expected):
        for j, candidates in enumerate(masks):
            scores, ids = got["scores"][i, j], got["token_ids"][i, j].tolist()
            best = [candidate["score"] for candidate in candidates[:K]]
            np.testing.assert_allclose(scores, best, atol=1e-6)
            # Tokens whose scores differ by rounding alone may change places.
            by_id = {candidate["token"]: candidate for candidate in candidates}
            for token, score, shown in zip(
                ids, scores, got["tokens"][i, j], strict=True
            ):
                assert abs(by_id[token]["score"] - score) <= 1e-6
                assert shown.decode() == by_id[token]["token_str"]
        rest = slice(max(count, 0), None)
        assert (got["token_ids"][i, rest] == -1).all()
        assert (got["tokens"][i, rest] == b"").all()
        assert (got["scores"][i, rest] == 0).all()


def test_equals_python(both):
    _assert_same(
        both,
        [
            "The cat is so [MASK] .",
            "[MASK] and [MASK]and un[MASK]able",
            "<mask> is [MASK].",
            "no mask [mask]",
            "",
            "[MASK]" + " the" * 30,
            "[MASK]\0 \u3000[MASK]\u0301x ΑΣ[MASK]Σ, 1990, 😀",
        ],
    )
    _assert_same(both, ["nothing to fill", ""])
    _assert_same(both, [])


@settings(max_examples=15)
@given(
    st.lists(
        st.lists(
            st.just("[MASK]")
            | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            max_size=5,
        ).map("".join),
        min_size=1,
        max_size=4,
    )
)
@example(["[MASK]" * 22, "[MASK]" * 23, "x"])
def test_any_text(both, texts):
    _assert_same(both, texts)


def test_bytes_that_are_not_utf_8(both):
    fill_mask, serve = both
    text = b"a\xff[MASK]\xe2\x82."
    got = serve([text, b"x [MASK]"])
    best = [row["token"] for row in fill_mask(text, top_k=K)]
    assert got["token_ids"][0, 0].tolist() == best


def test_many_masks_are_answered_in_groups(tokenizer, monkeypatch):
    model = AlbertMaskedLM(CONFIG, seed=1)
    texts = ["[MASK] a [MASK] b [MASK]", "", "c [MASK] [MASK]"]
    whole = _serve(model, tokenizer, traced=False)(texts)
    monkeypatch.setattr(signatures, "_MASKS_AT_A_TIME", 2)
    grouped = _serve(model, tokenizer, traced=False)(texts)
    np.testing.assert_array_equal(grouped["token_ids"], whole["token_ids"])
    np.testing.assert_allclose(grouped["scores"], whole["scores"], atol=1e-6)
    assert grouped["num_masks"].tolist() == [3, 0, 2]


def test_texts_beyond_the_bounds_are_refused(tokenizer, monkeypatch):
    monkeypatch.setattr(text_inputs, "MAX_RAW_BYTES", 200)
    monkeypatch.setattr(text_inputs, "MAX_TEXT_BYTES", 50)
    model = AlbertMaskedLM(CONFIG, seed=1)
    serve = _serve(model, tokenizer, traced=False)
    # Few tokens all the same: an unknown word, and blanks that are collapsed.
    word, blanks = "☃" * 20 + " [MASK]", "[MASK]" + " " * 200
    got = serve([word, blanks, "[MASK]" + " " * 194, "[MASK] x"])
    assert got["num_masks"].tolist() == [-1, -1, 1, 1]


def test_the_warm_up_request_fills_a_row(both):
    fill_mask, serve = both
    model, tokenizer = fill_mask.model, fill_mask.tokenizer
    made = make_signatures(model, TextInputs(tokenizer, 24))
    *_, (_, request) = warmup.make_requests(
        model, {"fill_mask": made["fill_mask"]}, 24, [2]
    )
    assert serve(request["text"].tolist())["num_masks"].tolist() == [22, 22]


def test_top_k_is_checked(tokenizer):
    model = AlbertMaskedLM(CONFIG, seed=1)
    for top_k in (0, 30001):
        with pytest.raises(UsageError, match=f"1 to 30000, received {top_k}"):
            make_signatures(model, TextInputs(tokenizer, 24), top_k=top_k)
