"""The pipeline writes the same bytes on every runner, and when a worker dies."""

import json
import pathlib

import pytest

pytest.importorskip("apache_beam")

from albert_tf.errors import DataError, UsageError
from albert_tf.export.saved_model import export_saved_model
from albert_tf.inference.pipeline.settings import PipelineSettings
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.storage.lock import locked_workplace
from tests import tiny

pytestmark = pytest.mark.slow
TEXT = "a film that nobody should ever have to see twice in one life"


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "films"
    classifier = AlbertTextClassifier(tiny.CONFIG, num_labels=3, seed=5)
    labels = ["no", "maybe", "yes"]
    return export_saved_model(
        classifier, path, tokenizer=tokenizer, labels=labels, warmup_batch_sizes=()
    )


@pytest.fixture
def texts(tmp_path):
    """Two files with 33 and 24 texts of different lengths."""
    folder = tmp_path / "texts"
    folder.mkdir()
    made = [TEXT[k % 5 : 1 + 7 * k % 65] for k in range(57)]
    for name, part in (("a", made[:33]), ("b", made[33:])):
        rows = [{"sentence": t, "id": f"{name}{k}"} for k, t in enumerate(part)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    return made


@pytest.fixture
def predict(model, tmp_path):
    from albert_tf.inference.pipeline.beam import predict_with_beam

    def predict(name, **changed):
        settings = {
            "saved_model": model,
            "input_file": f"{tmp_path}/texts/*.jsonl",
            "output_file": f"{tmp_path}/{name}/films",
            "columns": ("text=sentence",),
            "copy_columns": ("id",),
            "block_size": 8,
            "batch_size": 3,
            "num_shards": 4,
            "runner": "FnApiRunner",
        }
        paths = predict_with_beam(PipelineSettings(**(settings | changed)))
        return {p.rpartition("/")[2]: pathlib.Path(p).read_bytes() for p in paths}

    return predict


def test_answers_are_those_of_the_model(model, texts, predict, tmp_path):
    from albert_tf.inference.pipeline.saved_model import ServedModel

    found = predict("one")
    assert [*found] == [f"films-{k:05d}-of-00004.jsonl" for k in range(4)]
    rows = [json.loads(line) for data in found.values() for line in data.splitlines()]
    assert [row["index"] for row in rows] == list(range(57))
    assert [row["id"] for row in rows[31:35]] == ["a31", "a32", "b0", "b1"]
    alone = ServedModel(model, "serving_default").answer({"text": texts}, 1)
    assert [row["label"] for row in rows] == [answer["label"] for answer in alone]
    assert len({row["label"] for row in rows}) > 1
    for row, answer in zip(rows, alone, strict=True):
        assert row["logits"] == pytest.approx(answer["logits"], abs=1e-4)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [*found]


def test_same_bytes_on_other_workers(texts, predict):
    direct = predict("one")
    parallel = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    assert predict("two", beam_option=parallel) == direct


def test_same_bytes_when_a_dask_worker_is_killed(texts, predict, tmp_path):
    pytest.importorskip("distributed")
    from tests.dask_cluster import cluster

    direct = predict("one", runner="DirectRunner")
    hold = "albert_tf.inference.pipeline.beam:_write_answers"
    with cluster(tmp_path / "cluster", hold, after=2) as dask:
        killed = dask.run_and_kill_one(
            lambda: predict("dask", runner="DaskRunner", beam_option=dask.options)
        )
    assert killed == direct


def _write_until_full(block, content, found):
    path = pathlib.Path(block.answers)
    if len(list(path.parent.glob("answers-*"))) == 3:
        raise DataError("disk: full")
    path.write_bytes(b"kept\n" * block.rows)


def test_an_interrupted_run_goes_on(texts, predict, monkeypatch, tmp_path):
    from albert_tf.inference.pipeline import beam

    whole = predict("one", num_shards=1)
    with monkeypatch.context() as patched:
        patched.setattr(beam, "_write_answers", _write_until_full)
        with pytest.raises(DataError, match="^disk: full$"):
            predict("two", num_shards=1)
    done = list((tmp_path / "two/films.partial").glob("answers-*"))
    kept = sum(len(path.read_bytes().splitlines()) for path in done)
    assert len(done) == 3
    with pytest.raises(UsageError, match="holds the work of an unfinished run"):
        predict("two", batch_size=4)
    (lines,) = (data.splitlines() for data in predict("two", num_shards=1).values())
    (expected,) = (data.splitlines() for data in whole.values())
    new = [k for k, line in enumerate(lines) if line != b"kept"]
    assert [lines[k] for k in new] == [expected[k] for k in new]
    assert len(new) == 57 - kept


def test_a_run_stopped_between_two_files_goes_on(texts, predict, monkeypatch, tmp_path):
    from albert_tf.inference.pipeline import outputs

    whole = predict("one")
    rename = outputs.files.rename

    def fail_on_second(source, target):
        if "/shard-000001" in source:
            raise DataError("disk: full")
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(outputs.files, "rename", fail_on_second)
        with pytest.raises(DataError, match="^disk: full$"):
            predict("two")
    assert len(list((tmp_path / "two").glob("*.jsonl"))) == 1
    assert predict("two") == whole
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [*whole]


def test_the_command(model, texts, predict, tmp_path, run_python):
    result = run_python(
        "tools/predict_beam.py",
        f"--saved_model={model}",
        f"--input_file={tmp_path}/texts/a.jsonl,{tmp_path}/texts/b.jsonl",
        f"--output_file={tmp_path}/two.jsonl",
        "--columns=text=sentence",
        "--copy_columns=id",
        "--block_size=8",
        "--batch_size=3",
        "--runner=FnApiRunner",
        cwd=pathlib.Path(__file__).parents[3],
    )
    assert result.stdout == f"{tmp_path}/two.jsonl\n", result.stderr
    whole = b"".join(predict("one").values())
    assert (tmp_path / "two.jsonl").read_bytes() == whole


def test_another_process_on_the_same_output_is_refused(texts, predict, tmp_path):
    partial = tmp_path / "out/films.partial"
    refused = pytest.raises(UsageError, match="is writing to this folder")
    with locked_workplace(partial), refused:
        predict("out")
    assert not partial.exists()


def test_bad_requests_are_refused(texts, predict, tmp_path):
    with pytest.raises(UsageError, match="serving_default takes text, received txet"):
        predict("one", columns=("txet=sentence",))
    with pytest.raises(UsageError, match="copy_columns: .* a field 'label' of their"):
        predict("one", copy_columns=("label",))
    assert not (tmp_path / "one").exists()
    with pytest.raises(DataError, match="a.jsonl: no column 'text'"):
        predict("one", columns=())
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match="empty.txt: contains no text"):
        predict("two", input_file=f"{tmp_path}/empty.txt", columns=(), copy_columns=())
