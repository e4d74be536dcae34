"""The zip for the leaderboard."""

import io
import zipfile

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks.glue_submission import PARTS, find_predictions, make_submission
from albert_tf.tasks.registry import TASKS

# What models predict for three rows, and what the leaderboard wants.
ANSWERS = {
    "stsb": (["5.25", "-0.0", "3.14159"], ["5.000", "0.000", "3.142"]),
    "sst2": (["negative", "1", "positive"], ["0", "1", "1"]),
    "mnli": (["neutral", "entailment", "contradiction"],) * 2,
    "ax": (["neutral", "entailment", "contradiction"],) * 2,
    "qnli": (["entailment", "not_entailment", "entailment"],) * 2,
    "rte": (["entailment", "not_entailment", "entailment"],) * 2,
}
KEYS = [part.key for part in PARTS]
NUMBERS = (["0", "1", "0"],) * 2


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def predictions(answers, first=0):
    rows = [f"{i}\t{answer}\t0.5\n" for i, answer in enumerate(answers, first)]
    return "index\tprediction\tprobability_0\n" + "".join(rows)


OFFICIAL = {"CoLA": 1063, "SST-2": 1821, "MRPC": 1725, "STS-B": 1379, "QQP": 390965}
OFFICIAL |= {"MNLI-m": 9796, "MNLI-mm": 9847, "QNLI": 5463, "RTE": 3000, "WNLI": 146}
OFFICIAL |= {"AX": 1104}


@pytest.fixture
def runs(tmp_path):
    """Folders of fine-tuned models."""
    for part in PARTS:
        answers = ANSWERS.get(part.task, NUMBERS)[0]
        path = tmp_path / "runs" / part.task / f"{part.split}_predictions.tsv"
        write(path, predictions(answers))
    return tmp_path / "runs"


@pytest.fixture
def data(tmp_path):
    """Test files with three rows."""
    for part in PARTS:
        source = TASKS[part.task].splits[part.split]
        texts = (source.columns.text_column, source.columns.text_pair_column)
        texts = "\t".join(filter(None, texts))
        rows = "".join(f"{i}\t{texts}\n" for i in range(3))
        write(tmp_path / "glue" / source.names[0], f"index\t{texts}\n{rows}")
    return str(tmp_path / "glue")


def contents(archive):
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


def test_names_and_rows_are_the_leaderboards():
    found = {part.file.removesuffix(".tsv"): part.num_rows for part in PARTS}
    assert found == OFFICIAL


def test_all_tasks(runs, data):
    archive = make_submission(find_predictions(str(runs), {}), data_dir=data)
    found = contents(archive)
    assert list(found) == [part.file for part in PARTS]
    for part in PARTS:
        answers = ANSWERS.get(part.task, NUMBERS)[1]
        rows = "".join(f"{i}\t{answer}\n" for i, answer in enumerate(answers))
        assert found[part.file] == "index\tprediction\n" + rows
    # No time, no owner: the same bytes every time.
    assert archive == make_submission(find_predictions(str(runs), {}), (), data)
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        assert {info.date_time[0] for info in file.infolist()} == {1980}


def test_predictions_may_be_in_any_order(runs, data):
    path = runs / "wnli" / "test_predictions.tsv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], *lines[:0:-1]]))
    found = contents(make_submission(find_predictions(str(runs), {}), (), data))
    assert found["WNLI.tsv"] == "index\tprediction\n0\t0\n1\t1\n2\t0\n"


def test_other_places(runs, data, tmp_path):
    (runs / "ax" / "test_predictions.tsv").rename(runs / "mnli" / "ax_predictions.tsv")
    assert "mnli" in find_predictions(str(runs), {})["ax"]
    other = write(tmp_path / "best" / "test_predictions.tsv", predictions("111"))
    for given in ({"wnli": str(tmp_path / "best")}, {"wnli": other}):
        found = find_predictions(str(runs), given)
        assert found["wnli"] == other
        assert len(found) == len(PARTS)
    assert find_predictions("", {"mnli-m": other}) == {"mnli-m": other}
    with pytest.raises(UsageError, match="mnli has two files: give mnli-m and mnli-mm"):
        find_predictions("", {"mnli": other})
    with pytest.raises(DataError, match="none: no such file or folder"):
        find_predictions("", {"wnli": str(tmp_path / "none")})
    with pytest.raises(UsageError, match="one of cola, .*, received 'squad'"):
        find_predictions("", {"squad": other})
    with pytest.raises(DataError, match="none: expected a folder with a folder for"):
        find_predictions(str(runs / "none"), {})


def test_missing_tasks_are_left_out_only_if_told(runs, data):
    (runs / "wnli" / "test_predictions.tsv").unlink()
    (runs / "mnli" / "test_mismatched_predictions.tsv").unlink()
    found = find_predictions(str(runs), {})
    with pytest.raises(DataError, match="no predictions of mnli-mm,wnli; .*leave_out"):
        make_submission(found, (), data)
    archive = contents(make_submission(found, ["wnli", "mnli"], data))
    assert len(archive) == 8 and not {"WNLI.tsv", "MNLI-m.tsv"} & set(archive)
    with pytest.raises(UsageError, match="received 'x'"):
        make_submission(found, ["x"], data)
    with pytest.raises(UsageError, match="nothing is left"):
        make_submission(found, KEYS, data)


def test_short_rows_of_qqp_are_in_the_zip(tmp_path):
    rows = "0\ta\tb\n1\tbroken\n2\n3\tc\td\n"
    write(tmp_path / "QQP" / "test.tsv", "id\tquestion1\tquestion2\n" + rows)
    path = write(tmp_path / "p.tsv", predictions("0110"))
    others = [key for key in KEYS if key != "qqp"]
    archive = contents(make_submission({"qqp": path}, others, str(tmp_path)))
    assert archive["QQP.tsv"] == "index\tprediction\n0\t0\n1\t1\n2\t1\n3\t0\n"


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("wnli", predictions("01"), "3 indices .*, received 2 rows; .* '2' is missing"),
        ("wnli", predictions("0101"), "received 4 rows; index '3' is unknown"),
        ("wnli", predictions("010", 1), "'0' is missing and index '3' is unknown"),
        ("wnli", predictions("01") + "0\t1\t1\n", "line 4: the id '0' .* in line 2"),
        ("wnli", predictions("021"), "line 3: expected one of the labels 0, 1, rec"),
        ("wnli", "index\tlabel\n0\t1\n", "no column 'prediction'"),
        ("stsb", predictions(["1", "inf", "2"]), "line 3: expected a finite number"),
        ("stsb", predictions(["1", "", "2"]), "line 3: expected a finite number, rec"),
    ],
)
def test_bad_predictions(tmp_path, data, key, text, message):
    path = write(tmp_path / "p.tsv", text)
    with pytest.raises(DataError, match=rf"p\.tsv: .*{message}"):
        make_submission({key: path}, [k for k in KEYS if k != key], data)


def test_without_the_data_the_released_sizes_count(tmp_path):
    others = [key for key in KEYS if key != "wnli"]
    path = write(tmp_path / "p.tsv", predictions("1" * 146))
    archive = contents(make_submission({"wnli": path}, others))
    assert len(archive["WNLI.tsv"].splitlines()) == 147
    path = write(tmp_path / "p.tsv", predictions("1" * 145))
    with pytest.raises(DataError, match="expected the 146 indices"):
        make_submission({"wnli": path}, others)
