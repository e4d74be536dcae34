"""The flags of the original's scripts: they work, or say what to use instead."""

import re

import pytest

from albert_tf.tasks.registry import find_task
from tests.commands import run_command

# What the four scripts define, as of their last version.
ORIGINAL = """
    albert_config_file albert_hub_module_handle cached_dir data_dir do_eval
    do_lower_case do_predict do_train doc_stride dropout_prob end_n_top eval_batch_size
    eval_file export_dir gcp_project high_only init_checkpoint iterations_per_loop
    keep_checkpoint_max learning_rate master max_answer_length max_qa_length
    max_query_length max_seq_length middle_only n_best_size num_keep_checkpoint
    num_tpu_cores num_train_epochs optimizer output_dir predict_batch_size
    predict_feature_file predict_feature_left_file predict_file save_checkpoints_steps
    spm_model_file start_n_top task_name threshold_to_export tpu_name tpu_zone
    train_batch_size train_feature_file train_file train_step use_einsum use_tpu
    vocab_file warmup_proportion warmup_step
"""
# Parses the flags, and prints the settings that differ from the defaults.
COMMAND = """
import dataclasses, sys
from absl import flags
from albert_tf.cli.flags import read_settings
from albert_tf.cli.original_flags import check_what_to_do
from albert_tf.cli.run import run
sys.argv[0] = "finetune"
import tools.finetune
from albert_tf.training.finetune_settings import FinetuneSettings

def main():
    check_what_to_do()
    settings = read_settings(FinetuneSettings, {"output_dir": ""})
    default = FinetuneSettings(output_dir="")
    for name, value in dataclasses.asdict(settings).items():
        if value != getattr(default, name):
            print(name, value)

run(main)
"""


# The same, and checks what the settings say together.
CHECKED = COMMAND.replace("    default", "    settings.check_source()\n    default", 1)
# The commands in the original's README, with every flag.
_MODEL = """
    --init_checkpoint=base/model.ckpt-best --albert_config_file=base/albert_config.json
    --spm_model_file=base/30k-clean.model
"""
_SQUAD = """
    --output_dir=out --train_file=train.json --predict_file=dev.json
    --do_lower_case --max_seq_length=384 --doc_stride=128 --max_query_length=64
    --do_train=true --do_predict=true --train_batch_size=48 --predict_batch_size=8
    --learning_rate=5e-5 --num_train_epochs=2.0 --warmup_proportion=.1
    --save_checkpoints_steps=5000 --n_best_size=20 --max_answer_length=30
"""
_SQUAD_CACHES = [
    "--vocab_file=base/30k-clean.vocab",
    "--train_feature_file=train.tf_record",
    "--predict_feature_file=dev.tf_record",
    "--predict_feature_left_file=left.pkl",
]
# Script -> its command, what to add to it, and what to leave out of it.
README = {
    "run_classifier": (
        """--data_dir=glue --output_dir=out --do_train --do_eval --do_predict
        --do_lower_case --max_seq_length=128 --optimizer=adamw --task_name=MNLI
        --warmup_step=1000 --learning_rate=3e-5 --train_step=10000
        --save_checkpoints_steps=100 --train_batch_size=128""",
        "",
        [],
    ),
    "run_squad_v1": (_SQUAD, "--task=squad1", _SQUAD_CACHES),
    "run_squad_v2": (_SQUAD, "--task=squad2", _SQUAD_CACHES),
    "run_race": (
        """--output_dir=out --data_dir=RACE --max_seq_length=512 --max_qa_length=128
        --do_train --do_eval --train_batch_size=32 --eval_batch_size=8
        --learning_rate=1e-5 --train_step=12000 --warmup_step=1000
        --save_checkpoints_steps=100""",
        "--task=race",
        ["--eval_file=dev.tf_record", "--train_file=train.tf_record"],
    ),
}


@pytest.mark.parametrize("script", README)
def test_the_commands_of_the_readme(run_python, script):
    command, task, caches = README[script]
    given = [*_MODEL.split(), *command.split(), *task.split()]
    result = run_python("-c", CHECKED, *given)
    assert (result.returncode, result.stderr) == (0, "")
    shown = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert shown["albert_config_file"] == "base/albert_config.json"
    assert shown["init_checkpoint"] == "base/model.ckpt-best"
    expected = task.removeprefix("--task=") if task else "mnli"
    assert find_task(shown["task"]).name == expected
    # Files of encoded examples are refused, one by one, with what to do.
    for cache in caches:
        result = run_python("-c", CHECKED, *given, cache)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert cache.removeprefix("--").partition("=")[0] in result.stderr


def test_every_original_flag_is_known(run_python):
    code = (
        "import tools.finetune; from absl import flags; "
        f"print([n for n in {ORIGINAL.split()} if n not in flags.FLAGS])"
    )
    result = run_python("-c", code)
    assert result.stdout == "[]\n", result.stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "--do_train --do_eval=true --do_predict --task_name=SST-2 --train_step=9 "
            "--warmup_step=3 --nouse_tpu --vocab_file= --keep_checkpoint_max=4",
            {"task SST-2", "num_train_steps 9", "num_warmup_steps 3"}
            | {"keep_checkpoint_max 4"},
        ),
        (
            "--do_train --predict_file=dev.json --warmup_proportion=.2 --start_n_top=5 "
            "--num_keep_checkpoint=7 --use_einsum --nohigh_only",
            {"dev_file dev.json", "warmup_proportion 0.2", "keep_checkpoint_max 7"},
        ),
    ],
)
def test_the_command_lines_of_the_original(run_python, given, expected):
    result = run_python("-c", COMMAND, *given.split())
    assert (result.returncode, result.stderr) == (0, "")
    assert set(result.stdout.splitlines()) == expected


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
def test_what_has_no_counterpart_says_what_to_use(arguments, message):
    done = run_command("finetune", *arguments)
    assert done.code == 2 and done.err == f"{done.error}\n"
    assert done.error.startswith(f"error: {message}")


def test_help_lists_what_can_be_used():
    shown = run_command("finetune", "--helpfull").out
    assert "also --num_keep_checkpoint" in shown
    assert shown.index("--train_file") < shown.index("--tokens_column")
    assert not re.search(r"^  --(\[no\])?(use_tpu|do_train|vocab_file)$", shown, re.M)
