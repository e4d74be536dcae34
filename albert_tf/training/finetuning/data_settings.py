"""Settings of a fine-tuning run about its data and the weights it starts from."""

import dataclasses

from albert_tf.errors import UsageError
from albert_tf.settings import setting
from albert_tf.tasks.data_settings import DataSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceSettings(DataSettings):
    """The data of a run, and the weights it starts from."""

    output_dir: str = setting(
        "Folder of the run: new, or holding this same run, which is resumed. At the "
        "end it can be loaded like any model."
    )
    task: str = setting(
        "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad1, squad2, race, "
        "swag, codah, conll2003, wnut17, or table for files of your own.",
        "table",
    )
    train_file: str = setting(
        "Your own training examples (or a task's, instead of --data_dir).", ""
    )
    dev_file: str = setting("Examples to evaluate on.", "")
    dev_fraction: float | None = setting(
        "Share of the training examples to hold back as dev examples, of all labels "
        "alike, where there are none. Default: 0.1 of a data_dir whose test examples "
        "have labels, otherwise 0.",
        None,
    )
    test_file: str = setting("Examples to predict at the end; need no labels.", "")
    init_checkpoint: str = setting(
        "Pretrained model: a folder or checkpoint in any supported format, or a name "
        "such as hf://owner/name.",
        "",
    )
    from_scratch: bool = setting(
        "Start from random weights, for comparison with a pretrained model.", False
    )
    preset: str = setting("With from_scratch: released model to take sizes from.", "")
    albert_config_file: str = setting(
        "With from_scratch: JSON file with the model's sizes. With init_checkpoint: "
        "the checkpoint's own, as the original's commands give it; needed only where "
        "the checkpoint has none.",
        "",
    )
    spm_model_file: str = setting(
        "Tokenizer (SentencePiece or tokenizer.json), if the checkpoint has none.", ""
    )
    do_lower_case: bool | None = setting(
        "Whether to lower-case text, if the checkpoint does not say. Default: true.",
        None,
    )
    keep_accents: bool | None = setting(
        "Whether to keep accents, if the checkpoint does not say. Default: false.",
        None,
    )

    def check_source(self) -> None:
        """Checks that data and initial weights are specified unambiguously.

        Raises:
            UsageError: If they are not.
        """
        if not self.output_dir:
            raise UsageError("output_dir: required, but not given")
        if bool(self.data_dir) == bool(self.train_file):
            raise UsageError(
                "exactly one of data_dir (a task's official files) and train_file must "
                f"be given, received {self.data_dir!r} and {self.train_file!r}"
            )
        if self.data_dir and (self.dev_file or self.test_file):
            raise UsageError(
                "dev_file, test_file: only with train_file; data_dir has files of its "
                "own"
            )
        sizes = [self.preset, self.albert_config_file]
        if self.from_scratch:
            if self.init_checkpoint:
                raise UsageError(
                    "from_scratch: cannot be combined with init_checkpoint, received "
                    "both"
                )
            if sum(map(bool, sizes)) != 1 or not self.spm_model_file:
                raise UsageError(
                    "from_scratch: requires spm_model_file and either preset or "
                    "albert_config_file"
                )
        elif not self.init_checkpoint:
            raise UsageError(
                "init_checkpoint: required; to train from random weights, pass "
                "--from_scratch"
            )
        elif self.preset:
            raise UsageError("preset: only with from_scratch")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSettings:
    """How examples are read and cut into rows."""

    labels: tuple[str, ...] = setting(
        "Label names in the order of the class indices, or of the class ids (from 0, "
        "or from 1) in train_file; a file labels.txt beside it does the same. Default: "
        "the task's, or those in train_file, sorted.",
        (),
    )
    many_labels: bool = setting(
        "Accept more than 50 different labels, or a different one in every row.", False
    )
    answer_head: str = setting(
        "SQuAD: beam for the original's head of SQuAD 2.0, span for that of SQuAD 1.1, "
        "as other packages use it for both. Default: the original's.",
        "",
        choices=("", "beam", "span"),
    )
    doc_stride: int | None = setting(
        "SQuAD: tokens from the start of one window to the next. Default: 128.", None
    )
    max_query_length: int | None = setting(
        "SQuAD: tokens kept of a question. Default: 64.", None
    )
    max_answer_length: int | None = setting(
        "SQuAD: tokens of the longest answer. Default: 30.", None
    )
    n_best_size: int | None = setting(
        "SQuAD: number of answers to list. Default: 20.", None
    )
    max_qa_length: int | None = setting(
        "RACE: tokens kept of a question with a choice. Default: 128.", None
    )
    allow_other_versions: bool = setting(
        "Continue a run that other versions of albert_tf, TensorFlow or Keras began.",
        False,
    )
    overwrite: bool = setting(
        "Replace an earlier fine-tuning run in output_dir.", False
    )
