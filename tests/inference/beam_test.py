"""`predict` and `embed` write the same bytes on every runner, and if a worker dies."""

import functools
import json

import pytest

pytest.importorskip("apache_beam")

from albert_tf.errors import DataError, UsageError
from albert_tf.inference import files
from albert_tf.inference.settings import BulkSettings
from albert_tf.jobs import beam
from albert_tf.tasks.text_tables import TextFileSettings

pytestmark = pytest.mark.slow
TEXT = "a film that nobody should ever have to see twice in one life"


@pytest.fixture
def answer(model_folder, tmp_path):
    """Answers 57 texts of different lengths, and returns the bytes of the file."""
    folder = model_folder("text_classifier", labels=("a", "b"))
    rows = [{"sentence": TEXT[k % 5 : 1 + 7 * k % 65]} for k in range(57)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "texts.jsonl").write_text(lines)
    columns = TextFileSettings(text_column="sentence")
    source = functools.partial(columns.stream, f"{tmp_path}/texts.jsonl")

    def answer(name, runner="FnApiRunner", beam_option=(), kind=files.PredictWork):
        path = tmp_path / name
        bulk = BulkSettings(rows_per_part=8, runner=runner, beam_option=beam_option)
        work = kind(model=folder, output_file=str(path), batch_size=3)
        files.answer_rows(work, source, bulk=bulk)
        return path.read_bytes()

    return answer


@pytest.mark.parametrize("name", ["a.parquet", "a.npy"])
def test_same_bytes_as_without_beam(answer, name):
    kind = files.EmbedWork if name == "a.npy" else files.PredictWork
    assert answer(name, kind=kind) == answer(f"b{name}", runner=None, kind=kind)


def test_same_bytes_on_other_workers(answer):
    parallel = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    assert answer("two.jsonl", beam_option=parallel) == answer("one.jsonl")


def test_same_bytes_when_a_dask_worker_is_killed(answer, tmp_path):
    pytest.importorskip("distributed")
    from tests.dask_cluster import cluster

    direct = answer("one.jsonl", runner="DirectRunner")
    hold = "albert_tf.jobs.beam:_compute_part"
    with cluster(tmp_path / "cluster", hold, after=2) as dask:
        killed = dask.run_and_kill_one(
            lambda: answer("dask.jsonl", runner="DaskRunner", beam_option=dask.options)
        )
    assert killed == direct


def test_an_interrupted_run_goes_on(answer, monkeypatch, tmp_path):
    whole = answer("one.jsonl")
    compute = beam._compute_part
    parts = tmp_path / "two.jsonl.parts"

    def until_full(work, place, path):
        if len(list(parts.glob("part-*"))) == 3:
            raise DataError("disk: full")
        compute(work, place, path)

    with monkeypatch.context() as patched:
        patched.setattr(beam, "_compute_part", until_full)
        with pytest.raises(DataError, match="^disk: full$"):
            answer("two.jsonl")
    assert len(list(parts.glob("part-*"))) == 3
    with pytest.raises(UsageError, match="command was .*PredictWork"):
        answer("two.jsonl", kind=files.EmbedWork)
    # Without Beam the bytes are the same, so that a run can go on without it, too.
    assert answer("two.jsonl", runner=None) == whole
    assert not parts.exists()
