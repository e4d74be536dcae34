"""Runners and options that cannot be used are refused before any work."""

import functools
import pathlib
import pickle
from unittest import mock

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.jobs.folder import Part, Workplace
from albert_tf.jobs.run import Job

pytest.importorskip("apache_beam")


@pytest.mark.parametrize(
    ("runner", "options", "message"),
    [
        ("Nonsense", [], "runner: Nonsense cannot be used"),
        ("FnApiRunner", ["--no_such_option=1"], "no option .*no_such_option"),
        (
            "DaskRunner",
            ["--dask_client_address=tcp://127.0.0.1:9", "--dask_connection_timeout=1"],
            "runner: DaskRunner cannot be used: .*127.0.0.1:9",
        ),
        ("DaskRunner", ["--dask_address=x"], "no option .*dask_address"),
    ],
)
def test_what_beam_cannot_use_is_refused(runner, options, message):
    from albert_tf.jobs.beam import check_runner

    if runner == "DaskRunner":
        pytest.importorskip("distributed")
    with pytest.raises(UsageError, match=message):
        check_runner(runner, options)


def _touch(folder, name):
    if name == "bad":
        raise DataError(f"{name}: not good")
    (pathlib.Path(folder) / name).touch()


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["FnApiRunner", "DaskRunner"])
def test_each_element_is_processed_or_the_error_named(runner, tmp_path):
    from albert_tf.jobs.beam import run_each

    options = ()
    if runner == "DaskRunner":
        distributed = pytest.importorskip("distributed")
        cluster = distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address=None
        )
        options = (f"--dask_client_address={cluster.scheduler_address}",)
    touch = functools.partial(_touch, str(tmp_path))
    run_each([], touch, runner, options)
    run_each(["a", "b"], touch, runner, options)
    if runner == "DaskRunner":
        options += ("--dask_npartitions=1",)
    run_each(["c"], touch, runner, options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]
    with pytest.raises(DataError, match="^bad: not good$"):
        run_each(["bad"], touch, runner, options)
    if runner == "DaskRunner":
        assert {*cluster.scheduler.clients} == {"fire-and-forget"}  # its own
        cluster.close()


def test_another_model_at_the_same_path_is_opened(tmp_path):
    from albert_tf.jobs import beam

    work, path = mock.Mock(), tmp_path / "rows"
    path.write_bytes(pickle.dumps(Job(0, 0, ["row"], "digest")))
    for content in (b"one", b"two"):
        work.open.return_value = lambda job, on_rows, found=content: Part(found, {})
        place = Workplace(str(tmp_path / "parts"), {"model": str(content)})
        with place.open([], overwrite=True):
            beam._compute_part(work, place, str(path))
            assert next(place.parts(1)).content == content
    beam.compute_parts(work, place, [], "FnApiRunner")
    assert not beam._opened.cache_info().currsize
