"""`predict` writes the same bytes on every runner, and when a worker dies."""

import functools
import json
import pathlib

import pytest

pytest.importorskip("apache_beam")

from albert_tf.errors import DataError, UsageError
from albert_tf.inference import files, saved_model
from albert_tf.inference.settings import BulkSettings, ServedSettings
from albert_tf.jobs import beam
from albert_tf.tasks.text_tables import TextFileSettings

pytestmark = pytest.mark.slow
TEXT = "a film that nobody should ever have to see twice in one life"


@pytest.fixture(scope="module")
def model(exported):
    return exported("text_classifier")


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
    def predict(name, runner="FnApiRunner", beam_option=(), num_shards=4, **changed):
        given = {"columns": ("text=sentence",), "copy_columns": ("id",)} | changed
        served = ServedSettings(num_shards=num_shards, **given)
        bulk = BulkSettings(rows_per_part=8, runner=runner, beam_option=beam_option)
        texts, output = f"{tmp_path}/texts/*.jsonl", f"{tmp_path}/{name}/films"
        done = saved_model.predict_served(model, texts, output, served, bulk, 3)
        return {p.rpartition("/")[2]: pathlib.Path(p).read_bytes() for p in done.paths}

    return predict


def test_answers_are_those_of_the_model(model, texts, predict, tmp_path):
    found = predict("one")
    assert [*found] == [f"films-{k:05d}-of-00004.jsonl" for k in range(4)]
    rows = [json.loads(line) for data in found.values() for line in data.splitlines()]
    assert [row["index"] for row in rows] == list(range(57))
    assert [row["id"] for row in rows[31:35]] == ["a31", "a32", "b0", "b1"]
    alone = saved_model.ServedModel(model, "serving_default").answer({"text": texts}, 1)
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
    hold = "albert_tf.jobs.beam:_compute_part"
    with cluster(tmp_path / "cluster", hold, after=2) as dask:
        killed = dask.run_and_kill_one(
            lambda: predict("dask", runner="DaskRunner", beam_option=dask.options)
        )
    assert killed == direct


def test_an_interrupted_run_goes_on(texts, predict, monkeypatch, tmp_path):
    whole = predict("one")
    compute = beam._compute_part

    def until_full(work, place, path):
        if len(list((tmp_path / "two/films.parts").glob("part-*"))) == 3:
            raise DataError("disk: full")
        compute(work, place, path)

    with monkeypatch.context() as patched:
        patched.setattr(beam, "_compute_part", until_full)
        with pytest.raises(DataError, match="^disk: full$"):
            predict("two")
    done = list((tmp_path / "two/films.parts").glob("part-*"))
    times = {path.name: path.stat().st_mtime_ns for path in done}
    assert len(times) == 3
    with pytest.raises(UsageError, match=r"copied was \["):
        predict("two", copy_columns=())
    # Without Beam the bytes are the same, so that a run can go on without it, too.
    assert predict("two", runner=None) == whole
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [*whole]


@pytest.mark.parametrize("ending", ["parquet", "npy"])
def test_a_model_folder_answers_on_beam(texts, model_folder, tmp_path, ending):
    folder = model_folder("text_classifier", labels=("a", "b"))
    columns = TextFileSettings(text_column="sentence")
    source = functools.partial(columns.stream, f"{tmp_path}/texts/a.jsonl")
    kind = files.EmbedWork if ending == "npy" else files.PredictWork
    found = []
    for runner in ("FnApiRunner", None):
        path = tmp_path / f"{runner}.{ending}"
        bulk = BulkSettings(rows_per_part=8, runner=runner)
        work = kind(model=folder, output_file=str(path))
        files.answer_rows(work, source, bulk=bulk)
        found.append(path.read_bytes())
    assert found[0] == found[1]


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
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert result.stdout == f"{tmp_path}/two.jsonl\n", result.stderr
    whole = b"".join(predict("one").values())
    assert (tmp_path / "two.jsonl").read_bytes() == whole


def test_bad_requests_are_refused(texts, predict, tmp_path):
    with pytest.raises(UsageError, match="serving_default takes text, received txet"):
        predict("one", columns=("txet=sentence",))
    with pytest.raises(UsageError, match="copy_columns: .* a field 'label' of their"):
        predict("one", copy_columns=("label",))
    assert not (tmp_path / "one").exists()
    with pytest.raises(DataError, match="a.jsonl: no column 'text'"):
        predict("one", columns=())
