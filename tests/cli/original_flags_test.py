"""The flags of the original's scripts: they work, or say what to use instead."""

import dataclasses
import re
import runpy

import pytest
from absl import flags

from albert_tf.tasks.registry import find_task
from albert_tf.training import run_folder
from albert_tf.training.finetune_settings import FinetuneSettings
from tests.commands import fresh_flags, run_command
from tests.imports import ROOT

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


@pytest.fixture
def given(monkeypatch):
    """Returns the settings that `finetune` takes from flags, where not the default."""

    def parse(*arguments):
        found = {}

        def prepared(settings):
            defaults = {"output_dir": "", **FinetuneSettings.defaults()}
            for name, value in dataclasses.asdict(settings).items():
                if value != defaults[name]:
                    found[name] = value
            raise SystemExit

        monkeypatch.setattr(run_folder, "prepared", prepared)
        done = run_command("finetune", *arguments)
        return found or done

    return parse


@pytest.mark.parametrize("script", README)
def test_the_commands_of_the_readme(given, script):
    command, task, caches = README[script]
    arguments = [*_MODEL.split(), *command.split(), *task.split()]
    found = given(*arguments)
    assert found["albert_config_file"] == "base/albert_config.json"
    assert found["init_checkpoint"] == "base/model.ckpt-best"
    assert find_task(found["task"]).name == (task.removeprefix("--task=") or "mnli")
    # Files of encoded examples are refused, one by one, with what to do.
    for cache in caches:
        refused = given(*arguments, cache)
        assert refused.code == 2 and refused.err == f"{refused.error}\n"
        assert cache.removeprefix("--").partition("=")[0] in refused.error


def test_every_original_flag_is_known():
    with fresh_flags():
        runpy.run_path(ROOT / "tools/finetune.py", run_name="tool")
        assert {*ORIGINAL.split()} <= {*flags.FLAGS}


def test_the_command_lines_of_the_original(given):
    source = "--init_checkpoint=m --data_dir=d --output_dir=o"
    line = """--do_train --do_eval=true --do_predict --task_name=SST-2 --train_step=9
        --warmup_step=3 --nouse_tpu --vocab_file= --keep_checkpoint_max=4"""
    expected = dict(init_checkpoint="m", data_dir="d", output_dir="o", task="SST-2")
    expected |= dict(num_train_steps=9, num_warmup_steps=3, keep_checkpoint_max=4)
    assert given(*source.split(), *line.split()) == expected
    source = "--init_checkpoint=m --train_file=t --output_dir=o"
    line = """--do_train --predict_file=dev.json --warmup_proportion=.2 --start_n_top=5
        --num_keep_checkpoint=7 --use_einsum --nohigh_only"""
    expected = dict(init_checkpoint="m", train_file="t", output_dir="o")
    expected |= dict(dev_file="dev.json", warmup_proportion=0.2, keep_checkpoint_max=7)
    assert given(*source.split(), *line.split()) == expected


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
        (["--do_train=false"], "--do_train=False: finetune always trains, "),
        (["--do_predict"], "--do_predict=True: finetune always trains"),
        (["--nodo_eval"], "--do_eval=False: finetune always trains, eval"),
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
