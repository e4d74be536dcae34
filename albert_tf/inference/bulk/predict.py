"""Answers a table of texts of any size with a fine-tuned classifier."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.inference.bulk import formats
from albert_tf.inference.bulk.engine import Summary, answer_file
from albert_tf.inference.bulk.environment import environment
from albert_tf.inference.bulk.forward import (
    LENGTH_STEP,
    text_forward,
    use_one_thread_per_call,
)
from albert_tf.inference.bulk.model_digest import model_digest
from albert_tf.inference.bulk.settings import BulkSettings
from albert_tf.inference.prediction_files import choose_format
from albert_tf.inference.predictor import Predictor, find_task
from albert_tf.jobs.folder import Part
from albert_tf.jobs.run import Job
from albert_tf.tasks import text_classification
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION
from albert_tf.tasks.text_classification import Answers
from albert_tf.tasks.text_tables import Portions, TextTable

_WRITERS = {
    "tsv": formats.write_text,
    "csv": formats.write_text,
    "jsonl": formats.write_json_lines,
    "parquet": formats.write_parquet,
}


@dataclasses.dataclass(frozen=True)
class TextWork:
    """Predictions of a text classifier; see `run.Work`.

    Attributes:
        model: str. Path; see `Predictor.from_pretrained`.
        task: str. Name of another task than the model's; may be empty.
        max_seq_length: int or None.
        batch_size: int. Rows of a batch, at most.
        max_batch_tokens: int. Tokens of a batch, at most.
        kind: str. Result of `choose_format`.
        named: bool. Whether a column names the rows.
        exit: str or None. Rule by which the model stops early; see `ExitRule`.
    """

    model: str
    task: str
    max_seq_length: int | None
    batch_size: int
    max_batch_tokens: int
    kind: str
    named: bool
    exit: str | None = None

    def open(self, num_threads: int) -> Callable[[Job, Callable[[int], None]], Part]:
        use_one_thread_per_call(num_threads)
        loaded = Predictor.from_pretrained(
            self.model,
            task=find_task(self.model, self.task),
            max_seq_length=self.max_seq_length,
        )
        loaded.tokenizer.num_threads = num_threads
        predictor = Predictor(
            loaded.model,
            loaded.tokenizer,
            task=loaded.task,
            batch_size=self.batch_size,
            forward=text_forward(loaded.model, self.exit),
            max_batch_tokens=self.max_batch_tokens,
            length_step=LENGTH_STEP,
            num_threads=num_threads,
        )

        def compute(job: Job, on_rows: Callable[[int], None]) -> Part:
            answers = predictor.answers(job.rows, on_batch=on_rows)
            about = {
                "rows": len(answers),
                "numbered": text_classification.are_numbers(job.rows.ids, job.first),
            }
            return Part(self._content(job, answers), about)

        return compute

    def _content(self, job: Job, answers: Answers) -> bytes:
        table: TextTable = job.rows
        if self.kind == "parquet":
            return formats.table_content(_columns(table, answers, self.named))
        if self.kind == "jsonl":
            text = text_classification.json_lines(
                answers, table.ids, table.labels, job.first
            )
        else:
            delimiter = "," if self.kind == "csv" else "\t"
            text = text_classification.table_text(
                answers, table.ids, table.labels, delimiter, header=not job.index
            )
        return text.encode()


def predict_texts(
    model: str,
    source: Portions,
    output_file: str,
    *,
    task: str = "",
    max_seq_length: int | None = None,
    batch_size: int = 32,
    named: bool = False,
    exit: str | None = None,
    settings: Mapping[str, Any] | None = None,
    bulk: BulkSettings | None = None,
    overwrite: bool = False,
) -> Summary:
    """Writes the predictions of a text classifier for a table of any size.

    Args:
        model: str. Path of the model.
        source: `Portions`. The table.
        output_file: str. The file to write: `.tsv`, `.csv`, `.jsonl` or
            `.parquet`.
        task: str. Name of another task than the model's.
        max_seq_length: int or None. See `Predictor`.
        batch_size: int. Rows of a batch, at most.
        named: bool. Whether a column names the rows, for Parquet.
        exit: str or None. Rule by which the model stops early; see `ExitRule`.
        settings: dict. What determines the table, ready for JSON.
        bulk: `BulkSettings`.
        overwrite: bool. Whether an existing output may be replaced.

    Raises:
        UsageError: If the output exists and `overwrite` is not set.
        DataError: If a row cannot be used.
    """
    bulk = bulk or BulkSettings()
    kind = choose_format(output_file, "predictions for texts", _WRITERS)
    if kind == "parquet":
        formats.import_parquet(output_file)
    digest = model_digest(model)
    use_one_thread_per_call(bulk.threads_per_worker)
    work = TextWork(
        model,
        task,
        max_seq_length,
        batch_size,
        bulk.max_batch_tokens,
        kind,
        named,
        exit,
    )
    recorded = {
        "command": "predict",
        "model": digest,
        "task": task,
        "max_seq_length": max_seq_length,
        "predict_batch_size": batch_size,
        "exit": exit,
        **environment(),
        **(settings or {}),
    }
    write = _WRITERS[kind]
    return answer_file(work, source, output_file, write, recorded, bulk, overwrite)


def _columns(table: TextTable, answers: Answers, named: bool) -> dict[str, Any]:
    """Returns the columns of a Parquet file."""
    import pyarrow as pa

    text, several = pa.string(), pa.list_(pa.string())
    kinds = {REGRESSION: pa.float64(), MULTI_LABEL: several}
    columns = {"index": formats.index_column(table.ids, named)}
    if table.labels is not None:
        is_list = answers.problem_type == MULTI_LABEL
        labels = [list(one) if is_list else str(one) for one in table.labels]
        columns["label"] = pa.array(labels, several if is_list else text)
    found = [answers.text(i) for i in range(len(answers))]
    columns["prediction"] = pa.array(found, kinds.get(answers.problem_type, text))
    for i, label in enumerate(answers.labels):
        columns[f"probability_{label}"] = pa.array(answers.scores[:, i], pa.float32())
    return columns
