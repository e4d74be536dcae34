"""Calls a function for each element of a list, on any runner of Apache Beam.

Every pipeline of this package has one shape: a list of elements, each processed on its
own, with results in files; a job of several steps is several pipelines. Beam's Dask
runner is not trusted with anything else (release 2.77; each point but `Reshuffle` was
tried):

* of a pipeline it computes only the last transform added, so a second branch is never
  run;
* `Reshuffle` moves nothing, so elements stay in the partition they were created in;
* the tagged outputs of a `ParDo` are merged into one;
* elements that a DoFn emits in `finish_bundle` are dropped, and with them the last
  batch of `BatchElements`.

A worker may die after it has finished elements; other workers then repeat them. The
function must therefore write the same bytes whenever it is repeated, and each file
atomically. Needs the extra `beam`, or `dask` for the Dask runner.
"""

import contextlib
import functools
import io
import logging
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.jobs.folder import Part, Workplace
from albert_tf.jobs.run import Job, OnRows, Work
from albert_tf.storage import files

# Beam warns about every optional component that is not installed.
logging.getLogger("apache_beam.io").setLevel(logging.ERROR)
logging.getLogger("apache_beam.internal").setLevel(logging.ERROR)
try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import create_runner
except ImportError as error:
    raise UsageError(
        "runner: needs Apache Beam: pip install albert_tf[beam]"
    ) from error

_LOCAL_RUNNERS = (
    "DirectRunner",
    "FnApiRunner",
    "BundleBasedDirectRunner",
    "PrismRunner",
)
_DASK = "DaskRunner"
# Runners that Beam knows only by their class name.
_CLASSES = {_DASK: "apache_beam.runners.dask.dask_runner.DaskRunner"}
# Options of the Dask runner that exclude each other.
_PARTITIONS = ("--dask_partition_size", "--dask_npartitions")
_OPENING = threading.Lock()


def check_runner(runner: str, beam_options: Sequence[str]) -> None:
    """Raises `UsageError` for a runner or an option that Beam cannot use."""
    try:
        create_runner(_CLASSES.get(runner, runner))
    except (ValueError, ImportError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        if _is_dask(runner) and isinstance(error, ImportError):
            reason += ": pip install albert_tf[dask]"
        raise UsageError(f"runner: {runner} cannot be used: {reason}") from None
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            options = _make_options(runner, beam_options)
            options_of_beam = options.get_all_options()
            all_options = options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        reason = stderr.getvalue().strip().rpartition("error: ")[2]
        raise UsageError(f"beam_option: {reason}") from None
    unknown = sorted(all_options.keys() - options_of_beam.keys())
    unknown += [option for option in beam_options if not option.startswith("--")]
    if unknown:
        raise UsageError(f"beam_option: Beam has no option {unknown[0]!r}")
    if _is_dask(runner):
        _check_scheduler(options_of_beam)


def _is_dask(runner: str) -> bool:
    return runner.rpartition(".")[2] == _DASK


def _make_options(runner: str, beam_options: Sequence[str]) -> PipelineOptions:
    return PipelineOptions(list(beam_options), runner=_CLASSES.get(runner, runner))


def _check_scheduler(options: dict[str, Any]) -> None:
    """Raises `UsageError` if the named Dask scheduler does not answer."""
    from distributed import Client

    names = ("address", "scheduler_file", "timeout")
    client_options = {name: options[name] for name in names if options.get(name)}
    if not client_options.keys() & {"address", "scheduler_file"}:
        return  # the runner starts its own workers on this machine
    try:
        Client(**client_options, set_as_default=False).close()
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"runner: {_DASK} cannot be used: {reason}") from None


def run_each(
    elements: Sequence[Any],
    function: Callable[[Any], None],
    runner: str,
    beam_options: Sequence[str] = (),
) -> None:
    """Calls a function for every element, and waits until all are done.

    It may be called several times for the same element. The Dask runner pickles it with
    every element, so neither may be large.
    """
    if not elements:
        return
    own_options = list(beam_options)
    if _is_dask(runner) and not any(o.startswith(_PARTITIONS) for o in own_options):
        # By default, Dask gets up to 128 elements at once, which are often all.
        own_options.append("--dask_partition_size=1")
    options = _make_options(runner, own_options)
    try:
        root = beam.Pipeline(options=options)
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"runner: {runner} cannot be used: {reason}") from None
    result = None
    try:
        with _quiet(runner):
            created = root | "Elements" >> beam.Create(list(elements))
            created | "Spread" >> beam.Reshuffle() | "Process" >> beam.Map(function)
            result = root.run()
            result.wait_until_finish()
    except Exception as error:
        own_error = _find_known_error(error)
        if own_error is None:
            raise
        raise own_error from error
    finally:
        # The Dask runner leaves its connection, or its own workers, open.
        if client := getattr(result, "client", None):
            client.close()


@contextlib.contextmanager
def _quiet(runner: str) -> Iterator[None]:
    """Silences the log of a runner on this machine; errors are raised anyway."""
    # It would report every step of every worker, and repeat the traceback of every
    # error.
    logger = logging.getLogger("apache_beam")
    before = logger.level
    if runner in _LOCAL_RUNNERS:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def compute_parts(
    work: Work,
    place: Workplace,
    jobs: Iterable[Job],
    runner: str,
    beam_options: Sequence[str] = (),
) -> None:
    """Computes parts, whose rows go to the workers through files of the folder.

    The work must be hashable, and the workplace open; workers write the parts there.
    """
    paths = []
    for job in jobs:
        paths.append(place.join(f"rows-{job.index:06d}"))
        files.write_bytes(paths[-1], pickle.dumps(job))
    compute = functools.partial(_compute_part, work, place)
    try:
        run_each(paths, compute, runner, beam_options)
    finally:
        _opened.cache_clear()  # workers may have been threads of this process


def _compute_part(work: Work, place: Workplace, path: str) -> None:
    job = pickle.loads(files.read_bytes(path))
    with _OPENING:  # one model for all threads of a process
        compute = _opened(work, place.digest)
    place.write(job.index, job.digest, compute(job, lambda rows: None))


@functools.lru_cache(maxsize=1)
def _opened(work: Work, digest: str) -> Callable[[Job, OnRows], Part]:
    """Returns an open model; the digest distinguishes models at the same path."""
    return work.open(1)


def _find_known_error(error: BaseException) -> DataError | UsageError | None:
    """Returns our own error from a worker, which Beam wraps or rewrites."""
    seen: BaseException | None = error
    while seen is not None:
        for kind in (DataError, UsageError):
            if isinstance(seen, kind):
                return kind(str(seen).partition(" [while running")[0])
        seen = seen.__cause__ or seen.__context__
    return None
