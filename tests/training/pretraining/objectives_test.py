"""A second objective, BERT's next sentence prediction, from records to a model card."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.converters import load
from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import UsageError
from albert_tf.models.base import weight_names
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.objectives.pretraining import OBJECTIVES
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training import pretrain
from albert_tf.training import pretrain_batches as run_batches
from albert_tf.training.pretrain_settings import PretrainSettings
from tests.reports.parsed_page import ParsedPage

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden"
SPM = GOLDEN / "tokenization/spiece.model"
CONFIG = {
    "format": "albert_tf",
    "vocab_size": 30000,
    "embedding_size": 4,
    "hidden_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Folders of records by pair policy."""
    folders = {}
    for policy in ("clean", "nsp", "none"):
        folders[policy] = tmp_path_factory.mktemp(policy)
        create_pretraining_data(
            Corpus(str(GOLDEN / "tf1_data/input.txt")),
            str(folders[policy] / "x"),
            AlbertTokenizer(SPM),
            RecordConfig(pairs=PairConfig(policy, 64)),
            num_processes=1,
            progress=False,
        )
    return folders


@pytest.mark.parametrize(
    "objective, policy, fits",
    [
        ("albert", "clean", True),
        ("albert", "nsp", False),
        ("albert", "none", True),
        ("bert", "clean", False),
        ("bert", "nsp", True),
        ("bert", "none", True),
    ],
)
def test_labels_must_mean_what_is_learned(records, objective, policy, fits):
    arguments = ("eval_file", str(records[policy]), OBJECTIVES[objective])
    if fits:
        run_batches.check_pair_policy(*arguments)
        return
    message = f"--objective={objective} requires .*--eval_file=.*--pair_policy={policy}"
    with pytest.raises(UsageError, match=message):
        run_batches.check_pair_policy(*arguments)


def test_records_without_a_card_are_not_checked():
    pattern = str(GOLDEN / "tf1_data/seq128_pred20.tfrecord")
    run_batches.check_pair_policy("input_file", pattern, OBJECTIVES["bert"])


def test_an_unknown_objective_is_a_usage_error(tmp_path):
    settings = PretrainSettings(
        input_file="x",
        output_dir=str(tmp_path),
        spm_model_file="s",
        preset="p",
        objective="elctra",
    )
    with pytest.raises(UsageError, match="--objective must be one of albert, bert, re"):
        pretrain.pretrain(settings)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_weight_of_the_pair_loss_is_that_of_the_settings(name):
    settings = PretrainSettings(
        input_file="x",
        output_dir="out",
        spm_model_file="s",
        preset="p",
        objective=name,
        pair_loss_weight=0.5,
    )
    weights = [term.loss_weight for term in pretrain.find_objective(settings).terms]
    assert weights == [1.0, 0.5]


def test_a_pair_loss_of_weight_0_is_not_read():
    objective = OBJECTIVES["albert"].with_pair_weight(0.0)
    sums = {name: tf.constant(1.0) for name in objective.sum_names}
    with tf.GradientTape() as tape:
        tape.watch(sums)
        loss = objective.loss(sums, tf.ones(2))
    gradients = tape.gradient(loss, sums)
    assert gradients["mlm_loss_sum"] and gradients["sop_loss_sum"] is None


@pytest.mark.parametrize("weight", [-0.1, float("inf"), float("nan")])
def test_a_weight_that_is_no_weight_is_a_usage_error(weight):
    with pytest.raises(UsageError, match=f"--pair_loss_weight .* received {weight}"):
        PretrainSettings(
            input_file="x",
            output_dir="out",
            spm_model_file="s",
            preset="p",
            pair_loss_weight=weight,
        )


def run_tool(config_file, data, output, **changes):
    flags = {
        "input_file": data,
        "eval_file": data,
        "spm_model_file": SPM,
        "albert_config_file": config_file,
        "output_dir": output,
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "train_batch_size": 4,
        "num_train_steps": 4,
        "num_warmup_steps": 1,
        "log_steps": 2,
        **changes,
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, str(ROOT / "tools/pretrain.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.mark.slow
def test_next_sentence_prediction_from_records_to_the_card(
    records, config_file, tmp_path
):
    out = tmp_path / "run"
    result = run_tool(
        config_file, records["nsp"], out, objective="bert", pair_loss_weight=0.5
    )
    assert result.returncode == 0, result.stderr
    assert "NSP accuracy" in result.stderr and "SOP" not in result.stderr
    lines = [json.loads(x) for x in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["split"] for line in lines] == ["train", "train", "eval"]
    for line in lines:
        assert 0 <= line["nsp_accuracy"] <= 1
        assert line["loss"] == pytest.approx(line["mlm_loss"] + 0.5 * line["nsp_loss"])
        assert not [name for name in line if name.startswith("sop")]
    assert lines[-1]["nsp_baseline"] >= 0.5
    card = (out / "README.md").read_text()
    assert "| NSP accuracy |" in card and "SOP" not in card
    assert "objective `bert`" in card
    assert (out / "curves.png").stat().st_size > 10_000
    page = ParsedPage((out / "report.html").read_bytes())
    assert "NSP accuracy" in page.text and "Data card" in page.text
    albert_tf.from_pretrained(out / "model", head="pretraining")
    # Nothing is written if the labels belong to another objective.
    result = run_tool(config_file, records["nsp"], tmp_path / "other")
    assert result.returncode == 2 and "--objective=albert requires" in result.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_records_without_pairs_leave_the_pooler_untrained(
    records, config_file, tmp_path, caplog
):
    settings = PretrainSettings(
        input_file=str(records["none"]),
        output_dir=str(tmp_path / "run"),
        spm_model_file=str(SPM),
        **{"eval_file": str(records["none"]), "keep_best": "ema_loss"},
        **{"albert_config_file": str(config_file), "max_seq_length": 64},
        **{"train_batch_size": 4, "num_train_steps": 4, "num_warmup_steps": 1},
        **{"ema_decay": 0.9, "export_weights": "average", "eval_steps": 2},
    )
    pretrain.pretrain(settings)
    (said,) = [m for m in caplog.messages if "pooler" in m]
    assert "the loss does not read backbone/pooler/bias, backbone/pooler/kernel" in said
    start = weight_names(
        AlbertPretrainer(
            albert_tf.AlbertConfig.from_json(config_file), seed=settings.seed
        )
    )
    for name in ("model", "best"):
        with pytest.warns(albert_tf.UntrainedWeightsWarning, match="backbone/pooler"):
            model = albert_tf.from_pretrained(tmp_path / "run" / name)
        assert len(model.untrained_weights) == 4
        for name, value in weight_names(model).items():
            same = np.array_equal(value, start[name])
            assert same == (name in model.untrained_weights), name


def test_a_new_head_is_drawn_from_the_seed(config_file, tmp_path):
    config = albert_tf.AlbertConfig.from_json(config_file)
    backbone = albert_tf.AlbertBackbone(config, seed=5)
    albert_tf.save_pretrained(backbone, tmp_path / "start")

    def weights(seed):
        settings = PretrainSettings(
            input_file="data",
            output_dir="out",
            spm_model_file="spm",
            albert_config_file=str(config_file),
            init_checkpoint=str(tmp_path / "start"),
            seed=seed,
        )
        strategy = tf.distribute.get_strategy()
        run = pretrain.Pretraining(settings, strategy, OBJECTIVES["albert"])
        run.config = config
        with load.open_checkpoint(settings.init_checkpoint) as run.start:
            found = weight_names(run._make_model("float32"))
        return {name: value.numpy().tobytes() for name, value in found.items()}

    one = weights(1)
    assert weights(1) == one
    changed = {name for name, value in weights(2).items() if value != one[name]}
    assert changed and all("head" in name for name in changed), changed
