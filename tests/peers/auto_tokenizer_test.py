"""`AutoTokenizer` of a folder we wrote gives our ids."""

import json
import pathlib

import pytest

import albert_tf
from tests.tiny import make_model

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.peers

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="module", params=[True, False], ids=["lower", "cased"])
def both(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "m"
    ours = albert_tf.AlbertTokenizer(
        GOLDEN / "tokenization/spiece.model", do_lower_case=request.param
    )
    model = make_model("masked_lm", max_position_embeddings=20)
    albert_tf.save_pretrained(model, path, format="huggingface", tokenizer=ours)
    return ours, transformers.AutoTokenizer.from_pretrained(path), path


def test_ids(both):
    ours, theirs, _ = both
    golden = json.loads((GOLDEN / "tokenization/strings.json").read_text())
    texts = [item["text"] for item in golden]
    texts = [text for text in texts if not any(s in text for s in SPECIAL)]
    texts += (GOLDEN / "tf1_data/input.txt").read_text().splitlines()
    for text in texts:
        assert theirs(text, add_special_tokens=False).input_ids == ours.encode(text)


def test_special_tokens(both):
    ours, theirs, _ = both
    for role in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(theirs, f"{role}_token_id") == getattr(ours, f"{role}_id")
    assert theirs.model_max_length == 20
    assert theirs.decode(ours.encode("hello world")) == "hello world"


def test_pipeline(both):
    pytest.importorskip("torch")
    _, _, path = both
    fill = transformers.pipeline("fill-mask", model=str(path))
    assert len(fill("the cat is so [MASK].", top_k=3)) == 3
