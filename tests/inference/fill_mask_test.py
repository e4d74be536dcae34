"""`FillMask` on small random models, and on the checkpoints of a run."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.converters import load
from albert_tf.errors import DataError, UsageError
from albert_tf.inference.fill_mask import FillMask, _sources, answer_all
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertMaskedLM, AlbertPretrainer
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.train import train_tokenizer
from tests.tiny import CONFIG, GOLDEN, SPIECE

STRINGS = GOLDEN / "tokenization" / "strings.json"


@pytest.fixture(scope="module")
def fill_mask(tokenizer):
    return FillMask(AlbertMaskedLM(CONFIG, seed=1), tokenizer, batch_size=2)


def test_fill_mask_scores_are_the_models(fill_mask, tokenizer):
    result = fill_mask("The cat is so [MASK] .", top_k=4)
    ids = [tokenizer.cls_id, *tokenizer.encode("The cat is so"), tokenizer.mask_id]
    ids += [*tokenizer.encode("."), tokenizer.sep_id]
    position = ids.index(tokenizer.mask_id)
    logits = fill_mask.model({"token_ids": np.array([ids])}).numpy()[0, position]
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    best = np.argsort(-expected)[:4]
    assert [row["token"] for row in result] == best.tolist()
    scores = [row["score"] for row in result]
    np.testing.assert_allclose(scores, expected[best], rtol=1e-4)
    for row in result:
        assert list(row) == ["score", "token", "token_str", "sequence"]
        assert row["token_str"] == tokenizer.id_to_token(row["token"]).strip("▁")
        filled = ids[1:position] + [row["token"]] + ids[position + 1 : -1]
        assert row["sequence"] == tokenizer.decode(filled, skip_special=False)
        assert row["sequence"].startswith("the cat is so")
        assert "[MASK]" not in row["sequence"]


@pytest.mark.parametrize(
    "text, clean",
    [
        ("the cat 's so [MASK] .", "the cat's so {}."),
        ("[MASK] do n't , you ' know !", "{} don't, you'know!"),
        ('a " [MASK] " ; b', 'a " {} " ; b'),
    ],
)
def test_blanks_are_cleaned_up_as_transformers_does(fill_mask, text, clean):
    plain, cleaned = fill_mask(text, 3), fill_mask([text], 3, clean_up=True)[0]
    for one, other in zip(plain, cleaned, strict=True):
        word = one["token_str"]
        assert one["sequence"] == text.replace("[MASK]", word)
        assert other == {**one, "sequence": clean.format(word)}


def test_fill_mask_several_texts_and_masks(fill_mask):
    texts = ["the first one is [MASK]", "[MASK] and [MASK] and [MASK]", "A [MASK] b"]
    texts += ["x y [MASK]", "[MASK]"]
    first, three, *last = fill_mask(texts, top_k=2)
    assert [len(candidates) for candidates in three] == [2, 2, 2]
    assert three[1][0]["sequence"].count("[MASK]") == 2
    # Neither the batch nor its padding changes a result, nor the order of lengths.
    for rows, text in zip([first, *last], [texts[0], *texts[2:]], strict=True):
        for row, alone in zip(rows, fill_mask(text, top_k=2), strict=True):
            assert row["sequence"] == alone["sequence"]
            assert row["score"] == pytest.approx(alone["score"], rel=1e-4)
    assert fill_mask([]) == []


def test_the_mask_may_have_another_name():
    texts = [item["text"] for item in json.loads(STRINGS.read_text())]
    data = train_tokenizer(texts, model_type="byte_bpe", vocab_size=300, progress=False)
    tokenizer = ByteBPETokenizer(data.replace(b"[MASK]", b"<mask>"))
    fill_mask = FillMask(AlbertMaskedLM(CONFIG, seed=1), tokenizer)
    best = fill_mask("The cat <mask> down.", top_k=3)
    assert fill_mask("The cat [MASK] down.", top_k=3) == best
    ids = [*tokenizer.encode("The cat"), tokenizer.mask_id, *tokenizer.encode(" down.")]
    ids = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id]])
    logits = fill_mask.model({"token_ids": ids}).numpy()[0, :, :300]
    row = logits[ids[0].tolist().index(tokenizer.mask_id)]
    assert [made["token"] for made in best] == np.argsort(-row)[:3].tolist()
    with pytest.raises(UsageError, match="text: expected <mask> in it"):
        fill_mask("No mask.")


def test_fill_mask_refuses(fill_mask, tokenizer):
    with pytest.raises(UsageError, match=r"expected \[MASK\] in it, received 'no'"):
        fill_mask("no")
    with pytest.raises(UsageError, match="at most 24 tokens .* received 33"):
        fill_mask("[MASK]" + " the" * 30)
    with pytest.raises(UsageError, match="top_k must be from 1 to 30000, received 0"):
        fill_mask("[MASK]", top_k=0)
    with pytest.raises(UsageError, match="received AlbertBackbone"):
        FillMask(AlbertBackbone(CONFIG), tokenizer)
    with pytest.raises(UsageError, match="at most vocab_size=40 tokens"):
        FillMask(AlbertMaskedLM(CONFIG.replace(vocab_size=40)), tokenizer)


PROMPTS = ["a [MASK] b", "the [MASK] [MASK]"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tokenizer):
    """A run with two checkpoints and its model."""
    folder = tmp_path_factory.mktemp("run")
    settings = {"num_train_steps": 30}
    shutil.copy(SPIECE, folder / "spiece.model")
    content = {"config": CONFIG.to_dict(), "tokenizer": tokenizer.get_config()}
    record = {"settings": settings, "content": content}
    (folder / "run.json").write_text(json.dumps(record))
    for step in (9, 10):
        model = AlbertPretrainer(CONFIG, seed=step)
        values = {name: v.value for name, v in weight_names(model).items()}
        saved = tf.train.Checkpoint(weights=values)
        saved.write(str(folder / f"checkpoints/step-{step}"))
    load.save_pretrained(model, folder / "model", tokenizer=tokenizer)
    return folder


def test_checkpoints_answer_in_their_order(run, caplog):
    (run / "checkpoints/step-8.index").write_bytes(b"torn")
    found = list(answer_all(str(run), PROMPTS, 2))
    (run / "checkpoints/step-8.index").unlink()
    assert [one["name"] for one in found] == ["step 9", "step 10", "model"]
    assert "step-8: left out" in caplog.text
    first, second, model = (one["answers"] for one in found)
    assert [[len(mask) for mask in text] for text in first] == [[2], [2, 2]]
    assert first != second == model
    expected = FillMask.from_pretrained(run / "checkpoints/step-9")(PROMPTS[0], 2)
    # The texts of a batch are padded to one length.
    near = [[one["token_str"], pytest.approx(one["score"], 1e-4)] for one in expected]
    assert [[*one] for one in first[0][0]] == near


def test_what_answers_says_which_weights_it_has(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "checkpoints/step-10.index").rename(copy / "checkpoints/step-0.index")
    record = json.loads((run / "run.json").read_text())
    record["settings"] |= {"ema_decay": 0.9, "export_weights": "average"}
    (copy / "run.json").write_text(json.dumps(record))
    best = {"metric": "loss", "step": 4}
    shutil.copytree(run / "model", copy / "best")
    (copy / "best/best.json").write_text(json.dumps(best))
    assert [name for name, _ in _sources(str(copy))] == [
        "step 0, last weights",
        "step 9, averaged weights",
        "best, step 4, last weights",
        "model, averaged weights",
    ]
    record["settings"]["export_weights"] = "last"
    (copy / "run.json").write_text(json.dumps(record))
    best["metric"] = "ema_loss"
    (copy / "best/best.json").write_text(json.dumps(best))
    assert [name for name, _ in _sources(str(copy))][1:] == [
        "step 9, last weights",
        "best, step 4, averaged weights",
        "model, last weights",
    ]


def test_a_text_that_is_too_long_is_refused(run):
    with pytest.raises(UsageError, match="expected at most 24 tokens"):
        next(answer_all(str(run), ["a [MASK]" + " b" * 30]))


def test_damaged_weights(fill_mask, run, monkeypatch, caplog):
    scores = np.full((1, 1, 30000), np.nan, np.float32)
    monkeypatch.setattr(fill_mask, "_forward", lambda batch: scores)
    with pytest.raises(DataError, match="its probabilities are not finite"):
        fill_mask("a [MASK]")
    monkeypatch.setattr(FillMask, "from_pretrained", lambda path: fill_mask)
    assert list(answer_all(str(run), ["a [MASK]"])) == []
    assert "model: left out" in caplog.text


def test_a_run_without_checkpoints_answers_nothing(tmp_path):
    assert list(answer_all(str(tmp_path), PROMPTS)) == []
