"""`albert-tf fill_mask` with texts on standard input."""

import json
import pathlib
import subprocess
import sys

from albert_tf.config import AlbertConfig
from albert_tf.converters import load
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.text.sentencepiece import AlbertTokenizer

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = AlbertConfig(
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=24,
)


def test_lines_without_a_mask_are_skipped(tmp_path):
    tokenizer = AlbertTokenizer(ROOT / "tests/golden/tokenization/spiece.model")
    load.save_pretrained(AlbertMaskedLM(CONFIG), tmp_path / "m", tokenizer=tokenizer)
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tools/fill_mask.py"),
            f"--model={tmp_path / 'm'}",
            "--json",
            "--top_k=2",
        ],
        input="a [MASK]\n\nno mask here\nthe [MASK] b\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == ["a [MASK]", "the [MASK] b"]
    assert [len(answer["result"]) for answer in answers] == [2, 2]
    assert "stdin, line 3 skipped: text: expected [MASK] in it" in done.stderr


def test_the_mark_of_a_word_alone_is_visible(run_python):
    code = """
from tools.fill_mask import _print_table
row = {"score": 0.5, "token": 13, "sequence": "a b"}
_print_table([{**row, "token_str": ""}, {**row, "token_str": "of"}])
"""
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert "      13  ▁   a b" in done.stdout
    assert "      13  of  a b" in done.stdout
