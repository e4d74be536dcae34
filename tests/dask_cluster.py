"""A real Dask cluster on this machine, of which one worker is killed."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Seconds for a start on a busy machine; a test that works never waits so long.
_PATIENCE = 240


class Cluster:
    """A scheduler and two workers with one thread each: three processes.

    Args:
        folder: pathlib.Path. Where they keep what they need.
        hold: str. Function that is held, as `hold_worker.py` describes.
        after: int. Number of its calls that may end before.
        **environment: More variables of the environment of the workers.
    """

    def __init__(self, folder: pathlib.Path, hold: str, after: int, **environment: str):
        self.folder = folder / "held"
        self.folder.mkdir(parents=True)
        self._file = folder / "scheduler.json"
        variables = {
            "PYTHONPATH": str(ROOT),
            "HOLD": hold,
            "HOLD_AFTER": str(after),
            "HOLD_FOLDER": str(self.folder),
        }
        self._environment = os.environ | variables | environment
        file = f"--scheduler-file={self._file}"
        host = ("--host=127.0.0.1", "--no-dashboard")
        self.scheduler = self._start("scheduler", file, *host, "--port=0")
        preload = f"--preload={ROOT / 'tests' / 'hold_worker.py'}"
        # No nanny: a worker that was killed does not come back.
        own = ("--no-nanny", "--nthreads=1", "--memory-limit=0", preload)
        self.workers = [
            self._start("worker", file, *host, *own, f"--local-directory={folder}/{k}")
            for k in range(2)
        ]
        self._wait(self._file.exists)
        self.options = (f"--dask_scheduler_file={self._file}",)

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "dask", kind, *arguments]
        with open(self.folder.parent / f"{kind}.log", "ab") as log:
            return subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )

    def _wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not condition():
            for process in (self.scheduler, *self.workers):
                assert process.poll() is None, "a process of the cluster has ended"
            assert time.monotonic() < end, "the cluster does not get on"
            time.sleep(0.02)

    def calls(self, event: str, pid: int | str = "*") -> int:
        """Returns how many calls were started, held or ended."""
        return len(list(self.folder.glob(f"{event}-{pid}-*")))

    def run_and_kill_one(self, job: Callable[[], object]) -> object:
        """Runs a job; kills a worker in the middle of a call, and lets the other go on.

        Returns:
            The result of the job.
        """
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(job)

            def are_held() -> bool:
                if running.done():
                    running.result()
                    raise AssertionError("the job ended before a worker was killed")
                return all(self.calls("held", p.pid) for p in self.workers)

            try:
                self._wait(are_held)
                victim = self.workers.pop(0)
                victim.send_signal(signal.SIGKILL)
                victim.wait()
            finally:
                (self.folder / "go").touch()
            result = running.result(_PATIENCE)
        assert self.calls("started", victim.pid) == self.calls("ended", victim.pid) + 1
        return result

    def close(self) -> None:
        """Ends all processes."""
        for process in (*self.workers, self.scheduler):
            process.terminate()
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


@contextlib.contextmanager
def cluster(
    folder: pathlib.Path, hold: str, after: int, **environment: str
) -> Iterator[Cluster]:
    """Runs a `Cluster` while the block runs."""
    made = Cluster(folder, hold, after, **environment)
    try:
        yield made
    finally:
        made.close()
