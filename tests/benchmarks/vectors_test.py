"""The study of vectors: BM25, and a study whose trainings are copies."""

import json
import math
import shutil

import pytest

from benchmarks import vectors

pytest.importorskip("pytrec_eval")

HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\t"
ROWS = ["a man\ta man\t5.000", "a man\tone fish\t0.000", "the cat\ta cat\t4.000"]


def squad(path, start):
    paragraphs = [
        {
            "context": f"text {number} is about {word}",
            "qas": [{"question": f"which is about {word}?", "answers": [{}]}]
            + [{"question": "impossible?", "answers": []}],
        }
        for number, word in enumerate(("cats", "dogs", "fish"), start)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return str(path)


def test_bm25():
    # In three documents of 2, 1 and 3 words, "cat" is in two, "dog" is in one.
    found = vectors.bm25(["cat", "dog cat dog"], ["cat cat", "cat", "dog is here"])
    cat, dog = (math.log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (2, 1))
    share = lambda count, words: (  # noqa: E731
        count * 2.2 / (count + 1.2 * (0.25 + 0.75 * words / 2))
    )
    first = [cat * share(2, 2), cat * share(1, 1), 0]
    assert found[0] == pytest.approx(first)
    # A word that is asked twice counts twice.
    assert found[1] == pytest.approx([*first[:2], 2 * dog * share(1, 3)])


@pytest.mark.usefixtures("eager")
def test_study(model_folder, tmp_path, monkeypatch):
    lines = [f"{i}\t" * 7 + row for i, row in enumerate(ROWS)]
    for name in ("train", "dev"):
        text = "\n".join([HEADER + "sentence2\tscore", *lines]) + "\n"
        (tmp_path / f"{name}.tsv").write_text(text)
    table = tmp_path / "names.tsv"
    table.write_text("text\tpositive\na\tb\n")
    trained = []

    def train(settings):
        shutil.copytree(settings.init_checkpoint, settings.output_dir)
        trained.append(settings)

    monkeypatch.setattr(vectors, "finetune_once", train)
    monkeypatch.setattr(vectors, "_LENGTH", 16)
    monkeypatch.setitem(vectors.SCALES, "small", (2, 5, 3))
    folder, work = model_folder(None), tmp_path / "study"
    study = vectors.Study(
        str(work),
        (folder,),
        str(tmp_path),
        squad(tmp_path / "train.json", 1),
        squad(tmp_path / "dev.json", 5),
        str(table),
        "small",
    )
    report = vectors.run(study)
    rows = {row.name: row for row in report.rows}
    kinds = ("as it is", "after STS-B", "after names.tsv", "after SQuAD")
    names = ["bag of words", *(f"{folder}, {kind}" for kind in kinds)]
    titles = vectors.METRICS.values()
    expected = {f"{name}: {title}" for name in names for title in titles}
    assert rows.keys() == expected | {"BM25: search, nDCG@10"}
    # Every word of a question but one is in all or none of the paragraphs.
    assert rows["BM25: search, nDCG@10"].value == 1
    assert rows["bag of words: STS-B, Spearman"].value == pytest.approx(1)
    for title in titles:
        before, after = (rows[f"{folder}, {kind}: {title}"] for kind in kinds[:2])
        assert after.details["seeds"] == before.details["seeds"] * 2
    assert len(trained) == 6 and {one.seed for one in trained} == {1, 2}
    text = (work / "questions.tsv").read_text()
    assert "text 1 is about cats" in text and "impossible" not in text
    assert "text 5" not in text and "text 5" in (work / "beir/corpus.jsonl").read_text()
    assert "± " in report.text
