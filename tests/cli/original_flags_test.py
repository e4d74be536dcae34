"""The flags of the original's scripts: they work, or say what to use instead."""

import re

import pytest

from tools import main as dispatch

# What the four scripts define, as of their last version.
ORIGINAL = frozenset(
    [
        "albert_config_file",
        "albert_hub_module_handle",
        "cached_dir",
        "data_dir",
        "do_eval",
        "do_lower_case",
        "do_predict",
        "do_train",
        "doc_stride",
        "dropout_prob",
        "end_n_top",
        "eval_batch_size",
        "eval_file",
        "export_dir",
        "gcp_project",
        "high_only",
        "init_checkpoint",
        "iterations_per_loop",
        "keep_checkpoint_max",
        "learning_rate",
        "master",
        "max_answer_length",
        "max_qa_length",
        "max_query_length",
        "max_seq_length",
        "middle_only",
        "n_best_size",
        "num_keep_checkpoint",
        "num_tpu_cores",
        "num_train_epochs",
        "optimizer",
        "output_dir",
        "predict_batch_size",
        "predict_feature_file",
        "predict_feature_left_file",
        "predict_file",
        "save_checkpoints_steps",
        "spm_model_file",
        "start_n_top",
        "task_name",
        "threshold_to_export",
        "tpu_name",
        "tpu_zone",
        "train_batch_size",
        "train_feature_file",
        "train_file",
        "train_step",
        "use_einsum",
        "use_tpu",
        "vocab_file",
        "warmup_proportion",
        "warmup_step",
    ]
)
# Parses the flags, and prints the settings that differ from the defaults.
COMMAND = """
import dataclasses, sys
from absl import flags
from albert_tf.cli.flags import read_settings
from albert_tf.cli.original_flags import check_what_to_do
from albert_tf.cli.run import run
sys.argv[0] = "finetune"
import tools.finetune
from albert_tf.training.finetuning.settings import FinetuneSettings

def main():
    check_what_to_do()
    settings = read_settings(FinetuneSettings, {"output_dir": ""})
    default = FinetuneSettings(output_dir="")
    for name, value in dataclasses.asdict(settings).items():
        if value != getattr(default, name):
            print(name, value)

run(main)
"""


@pytest.fixture
def parse(run_python):
    return lambda *arguments: run_python("-c", COMMAND, *arguments)


def test_every_original_flag_is_known(run_python):
    code = (
        "import tools.finetune; from absl import flags; "
        f"print([n for n in {sorted(ORIGINAL)} if n not in flags.FLAGS])"
    )
    result = run_python("-c", code)
    assert result.stdout == "[]\n", result.stderr


def test_the_command_lines_of_the_original(parse):
    glue = parse(
        "--do_train",
        "--do_eval=true",
        "--do_predict",
        "--task_name=SST-2",
        "--train_step=9",
        "--warmup_step=3",
        "--nouse_tpu",
        "--vocab_file=",
        "--keep_checkpoint_max=4",
    )
    assert (glue.returncode, glue.stderr) == (0, "")
    assert set(glue.stdout.splitlines()) == {
        "task SST-2",
        "num_train_steps 9",
        "num_warmup_steps 3",
        "keep_checkpoint_max 4",
    }
    squad = parse(
        "--do_train",
        "--predict_file=dev.json",
        "--warmup_proportion=.2",
        "--start_n_top=5",
        "--num_keep_checkpoint=7",
        "--use_einsum",
        "--nohigh_only",
    )
    assert (squad.returncode, squad.stderr) == (0, "")
    assert set(squad.stdout.splitlines()) == {
        "dev_file dev.json",
        "warmup_proportion 0.2",
        "keep_checkpoint_max 7",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--use_tpu"], "--use_tpu=True: use --distribution=tpu"),
        (["--train_feature_file=a"], "--train_feature_file=a: leave it out; examples"),
        (["--export_dir=a"], "--export_dir=a: use albert-tf export"),
        (["--high_only=true"], "--high_only=True: use --data_dir=tfds:race/high"),
        (["--end_n_top=9"], "--end_n_top=9: the beam has 5 starts"),
        (["--iterations_per_loop=100"], "--iterations_per_loop=100: leave it out"),
        (["--nouse_einsum"], "--use_einsum=False: leave it out"),
        (["--do_train=false"], "--do_train=false: finetune always trains, which"),
        (["--do_predict"], "--do_predict=true: finetune always trains"),
        (["--do_train", "--nodo_eval"], "--do_eval=false: leave it out; dev examples"),
    ],
)
def test_what_has_no_counterpart_says_what_to_use(run_python, arguments, message):
    result = run_python(dispatch.__file__, "finetune", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_help_lists_what_can_be_used(run_python):
    shown = run_python(dispatch.__file__, "finetune", "--help").stdout
    assert "also --num_keep_checkpoint" in shown
    assert not re.search(r"^  --(\[no\])?(use_tpu|do_train|vocab_file)$", shown, re.M)
