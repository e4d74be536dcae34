"""Makes the zip file that the GLUE leaderboard (https://gluebenchmark.com) accepts."""

import io
import math
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.tables.columns import Ids, expect, shown
from albert_tf.tables.reader import read_columns
from albert_tf.tasks import glue
from albert_tf.tasks.task import REGRESSION, Task


class Part(NamedTuple):
    """One file of the submission.

    Attributes:
        num_rows: Rows of the released test file.
    """

    key: str
    file: str
    task: str
    split: str
    num_rows: int


PARTS = (
    Part("cola", "CoLA.tsv", "cola", "test", 1063),
    Part("sst2", "SST-2.tsv", "sst2", "test", 1821),
    Part("mrpc", "MRPC.tsv", "mrpc", "test", 1725),
    Part("stsb", "STS-B.tsv", "stsb", "test", 1379),
    Part("qqp", "QQP.tsv", "qqp", "test", 390965),
    Part("mnli-m", "MNLI-m.tsv", "mnli", "test_matched", 9796),
    Part("mnli-mm", "MNLI-mm.tsv", "mnli", "test_mismatched", 9847),
    Part("qnli", "QNLI.tsv", "qnli", "test", 5463),
    Part("rte", "RTE.tsv", "rte", "test", 3000),
    Part("wnli", "WNLI.tsv", "wnli", "test", 146),
    Part("ax", "AX.tsv", "ax", "test", 1104),
)
_TASKS = {task.name: task for task in glue.TASKS}


def find_predictions(folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the predictions file of each part that has one.

    `folder` has one folder per task (`cola`, `sst2`), usually the folder of the
    fine-tuned model. It holds `test_predictions.tsv`, for MNLI
    `test_matched_predictions.tsv` and `test_mismatched_predictions.tsv`. The
    predictions for AX are in a folder `ax`, or in MNLI's as `ax_predictions.tsv`.
    `given` names other files or folders by part or task. Raises `UsageError` if a name
    in `given` is unknown, and `DataError` if a folder or file does not exist.
    """
    if folder and not files.is_folder(folder):
        raise DataError(f"{folder}: expected a folder with a folder for each task")
    places = {name: files.join(folder, name) for name in _TASKS} if folder else {}
    paths = {}
    for name, path in given.items():
        first, *others = find_parts(name)
        if not files.exists(path):
            raise DataError(f"{path}: no such file or folder (predictions of {name})")
        if files.is_folder(path):
            places[first.task] = path
            continue
        keys = " and ".join(part.key for part in (first, *others))
        message = f"predictions: {name} has two files: give {keys}, received one file"
        require(not others, message)
        paths[first.key] = path
    for part in PARTS:
        for task, name in _names(part):
            path = files.join(places[task], name) if task in places else ""
            if path and part.key not in paths and files.exists(path):
                paths[part.key] = path
    return paths


def make_submission(
    predictions: Mapping[str, str], leave_out: Sequence[str] = (), data_dir: str = ""
) -> bytes:
    """Returns the zip file of predictions files; equal predictions give equal bytes.

    Their indices are compared with the test files in `data_dir`, or with the released
    files. Raises `DataError` if a part is missing, lacks rows or has too many, or has a
    label of another task.
    """
    omitted = {part.key for name in leave_out for part in find_parts(name)}
    parts = [part for part in PARTS if part.key not in omitted]
    missing = [part for part in parts if part.key not in predictions]
    if missing:
        keys = ",".join(part.key for part in missing)
        task, name = _names(missing[0])[0]
        raise DataError(
            f"no predictions of {keys}; expected for example the file {task}/{name} in "
            f"the folder of predictions (--leave_out={keys} makes an incomplete zip)"
        )
    require(parts, "leave_out: nothing is left to submit")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part in parts:
            text = _part_text(part, predictions[part.key], data_dir)
            info = zipfile.ZipInfo(part.file, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # Unix, wherever it is made
            info.external_attr = 0o644 << 16
            archive.writestr(info, text.encode())
    return buffer.getvalue()


def find_parts(name: str) -> list[Part]:
    """Returns the parts of that name: one part, or the parts of a task.

    Raises `UsageError` if there is no such part or task.
    """
    parts = [part for part in PARTS if name in (part.key, part.task)]
    keys = ", ".join(part.key for part in PARTS)
    require(parts, f"expected a task of GLUE, one of {keys}", name)
    return parts


def _names(part: Part) -> list[tuple[str, str]]:
    """Returns the tasks whose folders may hold a part, and the file name there."""
    names = [(part.task, f"{part.split}_predictions.tsv")]
    return names + ([("mnli", "ax_predictions.tsv")] if part.key == "ax" else [])


def _part_text(part: Part, path: str, data_dir: str) -> str:
    """Returns the content of a file of the zip."""
    columns = read_columns(path, ["index", "prediction"])
    task = _TASKS[part.task]
    expected = list(map(str, range(part.num_rows)))
    if data_dir:
        expected = task.splits[part.split].read(data_dir).ids
    answers, ids = {}, Ids()
    for row, (index, answer) in enumerate(zip(*columns.values.values(), strict=True)):
        try:
            ids.add(expect(index, str, "index"), f"{columns.unit} {columns.lines[row]}")
            answers[index] = _spelled(task, answer)
        except DataError as e:
            raise DataError(f"{columns.where(row)}: {e}") from None
    absent = [index for index in expected if index not in answers][:1]
    wanted = set(expected)
    extra = [index for index in answers if index not in wanted][:1]
    if absent or extra:
        details = [f"{index!r} is missing" for index in absent]
        details += [f"{index!r} is unknown" for index in extra]
        raise DataError(
            f"{path}: expected the {len(expected):,} indices of the test file of "
            f"{part.key}, received {len(answers):,} rows; index "
            f"{' and index '.join(details)}"
        )
    rows = [("index", "prediction"), *((index, answers[index]) for index in expected)]
    return "".join("\t".join(row) + "\n" for row in rows)


def _spelled(task: Task, answer: Any) -> str:
    """Returns an answer in the leaderboard's spelling."""
    if task.problem_type == REGRESSION:
        try:
            value = float(answer)
        except (TypeError, ValueError):
            value = math.nan
        message = "expected a finite number"
        require(math.isfinite(value), message, answer, error=DataError)
        # 3 decimals, on the scale of STS-B; + 0.0: -0.0 becomes 0.0
        return f"{min(max(value, 0.0), 5.0) + 0.0:.3f}"
    spelling = next(iter(task.splits.values())).classes
    if not isinstance(answer, str) or answer not in spelling:
        message = f"expected one of the labels {', '.join(task.labels)}"
        raise DataError(f"{message}, received {shown(answer)}")
    return spelling[answer]
