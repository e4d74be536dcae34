"""The README's Python runs as it stands there."""

import pathlib
import re
import shutil
import warnings

import pytest

import albert_tf

ROOT = pathlib.Path(__file__).parents[1]
SPM_MODEL = ROOT / "tests/golden/tokenization/spiece.model"
BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model where the README has a user's."""
    folder = tmp_path_factory.mktemp("readme")
    config = albert_tf.AlbertConfig(
        embedding_size=6,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=64,
    )
    model = albert_tf.AlbertPretrainer(config, seed=0)
    tokenizer = albert_tf.AlbertTokenizer(SPM_MODEL)
    ours = folder / "demo_output/pretrain/model"
    ours.parent.mkdir(parents=True)
    albert_tf.save_pretrained(model, ours, tokenizer=tokenizer)
    albert_tf.save_pretrained(model, folder / "albert_base", format="tf1")
    shutil.copy(SPM_MODEL, folder / "albert_base/30k-clean.model")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block(folder, number, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    warnings.simplefilter("ignore", albert_tf.UntrainedWeightsWarning)
    names = {}
    exec(compile(BLOCKS[number], f"README.md, block {number}", "exec"), names)
    if number == 0:
        printed = capsys.readouterr().out
        assert "token_str" in printed and "11683584" in printed
        assert names["logits"].shape == (1, 3)
    else:
        assert (folder / "served/1/saved_model.pb").exists()
        assert names["optimizer"].iterations == 2
        assert names["logits"].shape == (1, 2)
        assert "'label': " in capsys.readouterr().out


def test_there_are_two_blocks():
    assert len(BLOCKS) == 2
