"""Which steps are profiled, and where the trace is."""

import pathlib
import types

import pytest

from albert_tf.storage import files
from albert_tf.training import profile
from albert_tf.training.finetune_settings import FinetuneSettings


@pytest.fixture
def trace(monkeypatch):
    """Stands for a profiler; returns the steps at which it began and ended."""
    edges, now = [], types.SimpleNamespace(step=0)

    def start(folder):
        edges.append(now.step)
        path = pathlib.Path(folder) / "plugins/profile/now/host.xplane.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"trace")

    monkeypatch.setattr(profile, "start_trace", start)
    monkeypatch.setattr(profile, "stop_trace", lambda: edges.append(now.step))

    def run(folder, steps, begin=0, end=20):
        """Trains from a step to another; returns the edges and what was printed."""
        settings = FinetuneSettings(
            train_file="t", output_dir="o", init_checkpoint="c", num_train_steps=20
        ).having(profile_steps=steps, eval_steps=0, log_steps=7)
        edges.clear()
        now.step, lines = begin, []
        progress = types.SimpleNamespace(first_step=begin, log=lines.append)
        path = types.SimpleNamespace(join=lambda name: files.join(folder, name))
        callback, phase = profile.Profile(path, settings, progress), settings.phases[0]
        while now.step < end:
            before = now.step
            now.step += phase.next_count(before)
            callback.on_step(before, {"losses": [0.0] * (now.step - before)})
        callback.on_end()
        return list(edges), lines

    return run


@pytest.mark.parametrize(
    "steps, begin, end, edges",
    [
        (("5", "9"), 0, 20, [4, 9]),
        (("1", "1"), 0, 20, [0, 1]),
        (("14", "20"), 0, 20, [13, 20]),
        # A run that continues in the middle, and one that is stopped there.
        (("5", "9"), 7, 20, [7, 9]),
        (("5", "12"), 0, 7, [4, 7]),
    ],
)
def test_a_trace_holds_its_steps_alone(trace, tmp_path, steps, begin, end, edges):
    found, lines = trace(tmp_path, steps, begin, end)
    assert found == edges
    assert lines == [f"the profile is in {tmp_path}/tensorboard"]
    (written,) = (tmp_path / "tensorboard").rglob("*.pb")
    assert written.read_bytes() == b"trace"


def test_a_run_that_is_past_its_steps_says_so(trace, tmp_path):
    found, lines = trace(tmp_path, ("5", "9"), 9)
    assert not found and lines == ["--profile_steps: step 9 is past; no profile"]


def test_a_trace_that_cannot_be_written_ends_nothing(trace, tmp_path):
    (tmp_path / "tensorboard").touch()
    _, (line,) = trace(tmp_path, ("5", "9"))
    assert line.startswith("warning: no profile: ")
