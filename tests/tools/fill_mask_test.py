"""`albert-tf fill_mask` with texts on standard input."""

import io
import json

from albert_tf.inference.fill_mask import FillMask
from tests.commands import run_command


def test_lines_without_a_mask_are_skipped(model_folder, monkeypatch):
    text = "a [MASK]\n\nno mask here\nthe [MASK] b\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    given = {"model": model_folder("masked_lm"), "top_k": 2, "layers": 1}
    done = run_command("fill_mask", "--json", **given)
    assert done.code == 0, done.err
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["text"] for answer in answers] == ["a [MASK]", "the [MASK] b"]
    assert [len(answer["result"]) for answer in answers] == [2, 2]
    assert "stdin, line 3 skipped: text: expected [MASK] in it" in done.err
    expected = FillMask.from_pretrained(given["model"], layers=1)("a [MASK]", 2)
    tokens = [
        [row["token"] for row in rows] for rows in (answers[0]["result"], expected)
    ]
    assert tokens[0] == tokens[1]
    done = run_command("fill_mask", **(given | {"layers": 3}), text="a [MASK]")
    assert done.code == 2 and "layers: must be from 1 to 2, the layers" in done.error


def test_the_mark_of_a_word_alone_is_visible(model_folder, monkeypatch):
    row = {"score": 0.5, "token": 13, "sequence": "a b"}
    rows = [{**row, "token_str": ""}, {**row, "token_str": "of"}]
    monkeypatch.setattr(FillMask, "__call__", lambda *_: [rows])
    done = run_command("fill_mask", model=model_folder("masked_lm"), text="a [MASK]")
    assert "      13  ▁   a b" in done.out
    assert "      13  of  a b" in done.out
