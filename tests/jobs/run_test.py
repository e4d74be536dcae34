"""A run over a file: parts, workers, resumption, and what stands in its way."""

import json
import signal
import traceback

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.heads import LABELS
from albert_tf.inference.formats import Output
from albert_tf.jobs.folder import Part, Workplace
from albert_tf.storage import files
from tests.jobs.fake_work import Together, answer

TEXTS = [f"text {i}" for i in range(8)]
EXPECTED = "".join(f"{i} TEXT {i}\n" for i in range(8))


_INTERRUPTS = """
import multiprocessing, signal
from albert_tf.jobs import run
is_blocked = "import signal as s; exit(s.SIGINT in s.pthread_sigmask(s.SIG_BLOCK, []))"
for _ in range(2):
    with run._without_interrupts():
        worker = multiprocessing.get_context("spawn").Process(
            target=exec, args=(is_blocked,)
        )
        worker.start()
    worker.join()
    print(worker.exitcode, end=" ")
print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir() if "-by-" not in path.name)


@pytest.mark.parametrize("num_workers", [1, 5])
def test_the_output_does_not_depend_on_the_workers(tmp_path, num_workers):
    summary = answer(tmp_path, TEXTS, num_workers=num_workers)
    assert (tmp_path / "out.txt").read_text() == EXPECTED
    assert names(tmp_path) == ["out.txt"]
    assert (summary.rows, summary.resumed) == (8, 0)
    assert "8 texts in " in summary.text() and " per core" in summary.text()


def test_workers_start_at_the_same_time(tmp_path):
    # More than a pipe takes before its other end reads.
    texts = [f"text {i} {'x' * 1_000_000}" for i in range(6)]
    answer(tmp_path, texts, num_workers=2, work=Together)
    assert names(tmp_path) == ["out.txt"]
    expected = "".join(f"{i} {text.upper()}\n" for i, text in enumerate(texts))
    assert (tmp_path / "out.txt").read_text() == expected


def test_a_part_whose_worker_dies_is_computed_again(tmp_path):
    summary = answer(tmp_path, [*TEXTS[:4], "die once", *TEXTS[5:]], num_workers=2)
    assert (tmp_path / "out.txt").read_text() == EXPECTED.replace("TEXT 4", "DIE ONCE")
    assert summary.rows == 8
    assert (tmp_path / "die once.happened").exists()


def test_a_part_over_which_workers_die_ends_the_run_and_others_stay(tmp_path):
    texts = [*TEXTS[:4], "die", *TEXTS[5:]]
    with pytest.raises(DataError, match=r"2 workers died over the rows 4 to 6 .*-9"):
        answer(tmp_path, texts, num_workers=2)
    assert "part-000000" in names(tmp_path / "out.txt.parts")
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_bad_row_ends_the_run_and_finished_parts_stay(tmp_path, num_workers):
    texts = [*TEXTS[:7], "fail"]
    with pytest.raises(DataError, match=r"a.csv: line 8: refused"):
        answer(tmp_path, texts, num_workers=num_workers)
    folder = tmp_path / "out.txt.parts"
    assert names(folder) == ["part-000000", "part-000001", "settings.json"]
    # The input is mended: what did not change is not answered again.
    summary = answer(tmp_path, TEXTS, num_workers=num_workers)
    assert (summary.rows, summary.resumed) == (8, 6)
    assert (tmp_path / "out.txt").read_text() == EXPECTED
    assert len(list(tmp_path.glob("0-by-*"))) == 1


def test_a_bug_is_not_taken_for_bad_data(tmp_path):
    for num_workers, kind in ((1, KeyError), (2, RuntimeError)):
        with pytest.raises(kind, match="bug") as caught:
            answer(tmp_path, ["bug"], num_workers=num_workers)
        # The place of the bug is in the traceback, also of a worker.
        shown = "".join(traceback.format_exception(caught.value))
        assert "fake_work.py" in shown and 'raise KeyError("bug")' in shown


def interrupted(folder, texts=TEXTS, **settings):
    with pytest.raises(DataError):
        answer(folder, [*texts[:7], "fail"], **settings)


def test_a_changed_row_is_answered_again(tmp_path):
    interrupted(tmp_path)
    assert answer(tmp_path, ["other", *TEXTS[1:]]).resumed == 3
    assert (tmp_path / "out.txt").read_text() == EXPECTED.replace("TEXT 0", "OTHER")


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"[]", None])
def test_a_damaged_part_is_computed_again(tmp_path, damage):
    interrupted(tmp_path)
    path = tmp_path / "out.txt.parts/part-000001"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"x" if damage is None else damage)
    assert answer(tmp_path, TEXTS).resumed == 3
    assert (tmp_path / "out.txt").read_text() == EXPECTED


@pytest.mark.parametrize("claimed", [5, [["a"]], {"a": 1}, "a"])
def test_a_damaged_record_of_claimed_files_is_one_line(tmp_path, claimed):
    interrupted(tmp_path)
    path = tmp_path / "out.txt.parts/settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"claimed": claimed}))
    with pytest.raises(DataError, match="settings.json: claimed must be a list of na"):
        answer(tmp_path, TEXTS)


def test_parts_of_another_run_are_named_and_replaced_only_if_asked(tmp_path):
    interrupted(tmp_path, model="a" * 64, layer=1)
    with pytest.raises(UsageError) as caught:
        answer(tmp_path, TEXTS, model="b" * 64, layer=1, pooling="cls")
    message = str(caught.value)
    assert "model was aaaaaaaa…" in message
    assert 'pooling was null, is "cls"' in message
    assert "layer" not in message and "--overwrite" in message
    assert answer(tmp_path, TEXTS, model="b" * 64, overwrite=True).resumed == 0
    assert names(tmp_path) == ["out.txt"]


def test_two_runs_never_share_an_output(tmp_path):
    output = str(tmp_path / "out.txt.parts")
    with Workplace(output, {"model": "a"}).open([], overwrite=False):
        for model in "ab":
            with pytest.raises(UsageError, match="is writing to this folder"):
                answer(tmp_path, TEXTS, model=model, overwrite=True)
    assert names(tmp_path) == []


def test_parts_of_other_settings_are_not_joined(tmp_path):
    output = str(tmp_path / "out.txt")
    one, other = (Workplace(output, {"model": model}) for model in "ab")
    with one.open([], overwrite=False):
        one.write(0, "rows", Part(b"", {}))
        assert one.find(0, "rows") and not other.find(0, "rows")
        with pytest.raises(DataError, match="part-000000: damaged; the same command"):
            list(other.parts(1))
        with pytest.raises(DataError, match="part-000001: missing"):
            list(one.parts(2))


@pytest.mark.parametrize("resumed", [0, 6])
def test_an_output_is_replaced_only_if_asked(tmp_path, resumed):
    if resumed:
        interrupted(tmp_path)
    (tmp_path / "out.txt").write_text("of another run")
    before = names(tmp_path)
    with pytest.raises(UsageError, match="exists already; give --overwrite"):
        answer(tmp_path, TEXTS)
    assert names(tmp_path) == before
    assert (tmp_path / "out.txt").read_text() == "of another run"
    assert answer(tmp_path, TEXTS, overwrite=True).resumed == resumed
    assert (tmp_path / "out.txt").read_text() == EXPECTED


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "part-000000", "folder/notes.txt"])
def test_a_folder_of_something_else_is_kept(tmp_path, name, overwrite):
    path = tmp_path / "out.txt.parts" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    message = f"out.txt.parts must be free .* with {name.split('/')[0]}, "
    with pytest.raises(UsageError, match=message):
        answer(tmp_path, TEXTS, overwrite=overwrite)
    assert path.read_text() == "mine"
    assert names(tmp_path) == ["out.txt.parts"]


def test_what_comes_into_the_folder_during_a_run_is_kept(tmp_path):
    interrupted(tmp_path)
    folder = Workplace(str(tmp_path / "out.txt.parts"), {})
    path = tmp_path / "out.txt.parts/folder/notes.txt"
    path.parent.mkdir()
    path.write_text("mine")
    folder.remove()
    assert names(tmp_path / "out.txt.parts") == ["folder"]
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["", ".settings.json.0123.partial"])
def test_what_a_killed_run_leaves_of_its_folder_goes(tmp_path, name):
    (tmp_path / "out.txt.parts").mkdir()
    if name:
        (tmp_path / "out.txt.parts" / name).touch()
    answer(tmp_path, TEXTS)
    assert names(tmp_path) == ["out.txt"]


def test_paths_may_be_in_a_bucket(tmp_path, bucket):
    output = f"{bucket}/out.txt"
    interrupted(tmp_path, output=output)
    assert answer(tmp_path, TEXTS, output).resumed == 6
    assert files.read_text(output) == EXPECTED
    assert not files.exists(f"{output}.parts/part-000000")


def test_every_worker_ignores_an_interrupt_of_a_terminal(run_python):
    # In a process of its own: there, the first worker is another case than the next.
    output = run_python("-c", _INTERRUPTS)
    assert output.stdout == "1 1 False\n", output.stderr


def killed(run_forked, folder, moment):
    output = run_forked("-m", "tests.jobs.fake_work", str(folder), str(moment))
    done = output.stdout.startswith("done")
    assert output.returncode == (0 if done else -signal.SIGKILL), output.stderr
    return not done


@pytest.mark.parametrize(
    "moments", [(4, 9, 14), pytest.param(range(1, 99), marks=pytest.mark.broad)]
)
def test_a_killed_run_goes_on(tmp_path, run_forked, moments):
    finished = []
    for moment in moments:
        if not killed(run_forked, tmp_path, moment):
            assert moment > 15 and finished == [moment - 1]
            break
        try:
            answer(tmp_path, TEXTS)
        except UsageError as e:  # only the lock was left to remove
            assert "exists already" in str(e)
            finished.append(moment)
        assert (tmp_path / "out.txt").read_text() == EXPECTED
        assert names(tmp_path) == ["out.txt"]
        (tmp_path / "out.txt").unlink()
    else:
        assert not finished


def test_indices_are_names_if_one_is(tmp_path):
    path = tmp_path / "a.jsonl"
    number = Part(b'{"index": 0, "x": "\\n"}\n', {"numbered": True})
    name = Part(b'{"index": "b"}\n', {"numbered": False})
    for parts, indices in (([number], [0]), ([number, name], ["0", "b"])):
        Output(str(path), LABELS).write(lambda given=parts: iter(given))
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["index"] for line in lines] == indices
        assert lines[0]["x"] == "\n"
