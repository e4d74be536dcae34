"""What a family of tasks does: examples to rows, outputs of a model to answers.

The trainer, `evaluate` and `predict` know no task: they call the family of the task.

Legend: `N` examples, `R` rows, `U` training units, `P` places, `C` labels.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Options:
    """How examples become rows, and outputs answers.

    All but `on_bad_input` is saved with the model.

    Attributes:
        max_seq_length: int. Maximum number of tokens of a row.
        doc_stride: int. Question answering: tokens between the starts of two windows.
        max_query_length: int. Question answering: tokens kept of a question.
        max_qa_length: int. RACE: tokens kept of a question with one of its choices.
        n_best_size: int. Question answering: number of answers to write.
        max_answer_length: int. Question answering: tokens of the longest answer.
        null_threshold: float. Question answering: a question whose null score is above
            it is not answered.
        on_bad_input: str. "stop" raises an error at an example that cannot be used,
            "skip" leaves it out and counts it. Examples to predict are never left out.
    """

    max_seq_length: int = 512
    doc_stride: int = 128
    max_query_length: int = 64
    max_qa_length: int = 128
    n_best_size: int = 20
    max_answer_length: int = 30
    null_threshold: float = 0.0
    on_bad_input: str = "stop"


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedExamples:
    """Examples as rows of tokens with their targets.

    Attributes:
        rows: `EncodedTexts`. `R` rows.
        unit_splits: int64 `[U + 1]`. Unit `u`, which is never torn between two batches,
            consists of the rows from `unit_splits[u]` to before `unit_splits[u + 1]`:
            one row, or the choices of a question.
        targets: dict. By key of `features`, an array whose first axis is `U`, or `P`
            for the tags of words. Empty if the examples have no labels.
        truncated: bool `[N]`. Which examples lost text.
        place_splits: int64 `[R + 1]` or None. For words: row `r` has the places from
            `place_splits[r]` to before `place_splits[r + 1]`.
        places: int32 `[P]` or None. Index within its row of each word's first token.
        detail: What the family needs to turn outputs into answers.
    """

    rows: inputs.EncodedTexts
    unit_splits: np.ndarray
    targets: Mapping[str, np.ndarray]
    truncated: np.ndarray
    place_splits: np.ndarray | None = None
    places: np.ndarray | None = None
    detail: Any = None

    def __len__(self) -> int:
        """Returns U."""
        return len(self.unit_splits) - 1


class Family(Protocol):
    """How the tasks of one family work.

    Outputs of a model, for all rows in order, are a dict of arrays:

    - text classification: `logits` float32 `[U, C]`,
    - multiple choice: `logits` float32 `[R]`, one per choice,
    - tagging: `logits` float32 `[P, C]`,
    - question answering: `start_logits` and `end_logits` float32 `[tokens]`, for every
      token of every row, as `rows.ids`,
    - question answering with the beam head: `start_log_probs`, `start_index`
      `[R, S]`, `end_log_probs`, `end_index` `[R, S * E]`, `cls_logits` `[R]`.

    What the answers are is defined by the family.
    """

    def usable(self, task, examples, options: Options) -> Any:
        """Returns the examples without those that cannot be trained or evaluated on.

        Raises:
            DataError: If there are such examples and `options.on_bad_input` is "stop".
        """
        return examples

    def to_evaluate(self, task, examples, options: Options) -> Any:
        """Returns the examples to evaluate on, also of a split that is trained on.

        Raises:
            DataError: As `usable`.
        """
        return self.usable(task, examples, options)

    def encode(
        self, task, examples, tokenizer: Tokenizer, options: Options
    ) -> EncodedExamples:
        """Returns the rows of examples, with targets if the examples have labels.

        Raises:
            DataError: If an example cannot be used; names file, line and value.
        """

    def answers(
        self,
        task,
        examples,
        encoded: EncodedExamples,
        outputs: Mapping[str, np.ndarray],
        options: Options,
    ) -> Any:
        """Returns the answers to all examples."""

    def metrics(self, task, examples, answers) -> dict[str, float]:
        """Compares answers with labels: the task's metrics and trivial baselines."""

    def metric_names(self, task, examples) -> list[str]:
        """Returns which of `metrics` can select a model, without evaluating one.

        Baselines, counts and thresholds are left out: they do not measure the model.
        """

    def collapse(self, task, examples, answers) -> str:
        """Returns how the answers show that training collapsed, or an empty string."""

    def prediction_files(
        self, task, examples, answers, options: Options
    ) -> dict[str, str]:
        """Returns the contents of files of predictions, by ending of their names.

        `".tsv"` and `".jsonl"` for most families. Question answering:
        `".json"` (answers by id), `"_nbest.json"`, `"_null_odds.json"`.
        """

    def strata(self, task, examples) -> list[tuple[Any, Any]]:
        """Returns what each example must not be torn from, and its kind.

        Of examples that are held back, all kinds have their share.
        """
        return list(enumerate(examples.labels))

    def hold_back(self, task, examples, seed: int) -> tuple[Any, Any]:
        """Returns examples to train on, and others to calibrate on or None."""
        return examples, None

    def calibrate(
        self,
        task,
        examples,
        encoded: EncodedExamples,
        outputs: Mapping[str, np.ndarray],
        options: Options,
    ) -> Options:
        """Returns options chosen on examples that were held back from training."""
        return options

    def report(self, task, examples, answers, encoded: EncodedExamples) -> dict:
        """Returns what a report shows; see `reports.task_report`."""
