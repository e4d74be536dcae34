"""The study of folded encoders; its trainings are copies."""

import shutil

import pytest

import albert_tf
from benchmarks import folding
from tests.benchmarks.vectors_test import HEADER, ROWS, squad
from tests.tiny import SPIECE, make_model

pytest.importorskip("pytrec_eval")


@pytest.mark.usefixtures("eager")
def test_study(tmp_path, monkeypatch):
    lines = [f"{i}\t" * 7 + row for i, row in enumerate(ROWS)]
    text = "\n".join([HEADER + "sentence2\tscore", *lines]) + "\n"
    (tmp_path / "dev.tsv").write_text(text)
    (tmp_path / "corpus.txt").write_text("A cat. A dog. A fish.\n\n\nTwo cats.\n")
    trained = []

    def train(settings):
        shutil.copytree(settings.init_checkpoint, settings.output_dir)
        trained.append(settings)

    monkeypatch.setattr(folding, "finetune_once", train)
    monkeypatch.setattr("benchmarks.vectors._LENGTH", 16)
    monkeypatch.setitem(folding.SCALES, "small", (9, 5, 2, 3))
    in_turns = folding.seconds_in_turns
    once = lambda calls, rounds, what: in_turns(calls, 1, what)  # noqa: E731
    monkeypatch.setattr(folding, "seconds_in_turns", once)
    teacher = make_model("text_embedder", sharing="none", num_hidden_layers=4)
    config = teacher.config
    tokenizer = albert_tf.load_tokenizer(SPIECE)
    teacher.preprocessor = albert_tf.Preprocessor(tokenizer, max_seq_length=16)
    albert_tf.save_pretrained(teacher, tmp_path / "teacher")
    study = folding.Study(
        str(tmp_path / "study"),
        str(tmp_path / "teacher"),
        str(tmp_path / "corpus.txt"),
        str(tmp_path),
        squad(tmp_path / "dev.json", 5),
        "small",
        16,
        ((1, 4), (config.hidden_size, None)),
    )
    report = folding.run(study)
    rows = {row.name: row for row in report.rows}
    names = ["rank 1, E 4", f"rank {config.hidden_size}, E as the teacher"]
    names += ["rank 1, E 4, random", "every second layer"]
    expected = [*names, *(f"{name}, trained" for name in names), "teacher"]
    assert sorted(rows) == sorted(expected)
    # The whole rank loses nothing.
    assert rows[names[1]].value == pytest.approx(rows["teacher"].value, abs=1e-5)
    sizes = {name: row.details["parameters"] for name, row in rows.items()}
    assert sizes[names[0]] == sizes[names[2]] < sizes[names[1]]
    assert sizes[names[3]] < sizes["teacher"] == teacher.count_params()
    assert [one.num_train_steps for one in trained] == [4, 1, 1, 5, 5, 10]
    assert len(rows[f"{names[0]}, trained"].details["spearman"]) == 2
    kept = albert_tf.from_pretrained(study.work_dir + "/every-second-layer")
    value = lambda model, part: next(  # noqa: E731
        w.numpy() for w in model.weights if f"{part}/" in w.path
    )
    for old, new in (("attention_1", "attention_0"), ("ffn_3", "ffn_1")):
        assert (value(teacher, old) == value(kept, new)).all()
    assert report.picture.startswith(b"\x89PNG")
