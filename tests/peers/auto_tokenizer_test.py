"""`AutoTokenizer` of a folder we wrote gives our ids."""

import json
import pathlib

import numpy as np
import pytest
import tokenizers

import albert_tf
from albert_tf.tasks import tagging
from albert_tf.text.preprocessor import Preprocessor
from tests.text import kinds
from tests.text.kinds import SENTENCEPIECE, WORDPIECE, bpe
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


def test_words_of_byte_bpe():
    """`is_split_into_words` with `add_prefix_space`, which RoBERTa's class demands."""
    ours = bpe()
    library = tokenizers.Tokenizer.from_buffer(ours.model)
    library.pre_tokenizer.add_prefix_space = True
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "<unk>"}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=library, **names)
    texts = [t for t in kinds.TEXTS if t.split() and not any(s in t for s in SPECIAL)]
    for words in map(str.split, ["I live in London .", *texts]):
        expected = theirs(words, is_split_into_words=True, add_special_tokens=False)
        found = tagging.encode_words([words], ours, 10_000)
        assert found.rows.ids.tolist()[1:-1] == expected.input_ids
        firsts = np.unique(expected.word_ids(), return_index=True)[1]
        assert (found.places - 1).tolist() == firsts.tolist()


@pytest.mark.parametrize("kind", ["lower", "wordpiece", "byte_bpe"])
@pytest.mark.parametrize("num_segments", [1, 2])
def test_pairs(tmp_path, kind, num_segments):
    ours = {**SENTENCEPIECE, **WORDPIECE, "byte_bpe": bpe()}[kind]
    model = make_model("masked_lm", type_vocab_size=num_segments)
    albert_tf.save_pretrained(model, tmp_path, format="huggingface", tokenizer=ours)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = peer("one text", "another")
    preprocessor = Preprocessor(ours.for_segments(num_segments), 64)
    expected = preprocessor(("one text", "another"))
    length = expected["padding_mask"].sum()
    assert theirs["input_ids"] == expected["token_ids"][:length].tolist()
    ids = [*expected["token_ids"].tolist(), ours.mask_id, ours.unk_id]
    mask = peer.get_special_tokens_mask(ids, already_has_special_tokens=True)
    assert ours.special_tokens_mask(ids).tolist() == mask
    segments = expected["segment_ids"][:length].tolist()
    assert theirs.get("token_type_ids") == (segments if num_segments == 2 else None)


def test_folders_of_our_own_state_the_options(tmp_path):
    """Their class for SentencePiece has no digit-comma rule: it must be named."""
    model, texts = make_model("masked_lm"), ["Über CAFÉ 中文 the cat", "Ⅷ [E1]s"]
    added = WORDPIECE["wordpiece"].with_options(added_tokens=[{"content": "[E1]"}])
    folded = {name: SENTENCEPIECE[name] for name in ("lower", "cased", "accents")}
    for name, ours in {**folded, **WORDPIECE, "added": added}.items():
        albert_tf.save_pretrained(model, tmp_path / name, tokenizer=ours)
        kind = transformers.AutoTokenizer
        if name in folded:
            kind = transformers.AlbertTokenizer
            with pytest.raises(ValueError, match="instantiate"):
                transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        theirs = kind.from_pretrained(tmp_path / name)
        expected = ours.encode_batch(texts)
        assert theirs(texts, add_special_tokens=False).input_ids == expected


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
