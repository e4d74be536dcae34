import json
import pathlib

import numpy as np
import pytest

from albert_tf.config import PRESETS, AlbertConfig, activations
from albert_tf.errors import UsageError
from albert_tf.optimizers.adamw import AdamW
from albert_tf.optimizers.lamb import Lamb
from albert_tf.planning import facts
from tests.tiny import make_model

ROOT = pathlib.Path(__file__).parents[2]
COUNTS = json.loads((ROOT / "tests/golden/param_counts.json").read_text())


@pytest.mark.parametrize("name", [n for n in PRESETS if n.startswith("albert")])
def test_counts_are_those_of_the_original(name):
    counted = COUNTS["google_modeling_py"][name]
    row = facts.describe(AlbertConfig.from_preset(name))
    parts, norm = row["parameters"], 2 * 128  # one of all layer norms
    tables = sum(
        parts[f"{name}_embeddings"] for name in ("token", "position", "segment")
    )
    assert tables + norm == counted["embeddings"]
    assert parts["embedding_projection"] == counted["embedding_hidden_mapping_in"]
    block = parts["attention"] + parts["ffn"] + parts["layer_norms"] - norm
    assert block == counted["encoder_transformer"]
    assert row["total"] == counted["bert_scope_with_pooler"]
    assert row["with_heads"] == counted["with_pretraining_heads_total"]


def test_parts_of_base_and_times_fewer_than_bert():
    names = ("albert_base_v2", "bert_base", "albert_xxlarge_v2", "electra_small")
    albert, bert, other, electra = (
        facts.describe(AlbertConfig.from_preset(name)) for name in names
    )
    assert (albert["total"], bert["total"]) == (11_683_584, 109_482_240)
    assert (albert["bert"], albert["times_fewer"]) == ("bert_base", 9.37)
    assert (bert["bert"], bert["times_fewer"]) == ("bert_base", 1.0)
    assert (other["bert"], other["times_fewer"]) == ("bert_large", 1.51)
    # The number of an `ElectraPretrainer`, counted in tests/models/electra_test.py.
    assert electra["weights"] == 4 * (electra["with_heads"] + electra["generator"])
    assert electra["weights"] == 4 * 14_196_219 and albert["generator"] == 0
    assert electra["with_heads"] - electra["total"] == 257 * 256 + 257
    assert (electra["bert"], electra["times_fewer"]) == ("bert_base", 8.12)
    large = facts.describe(AlbertConfig.from_preset("albert_large_v1"))
    assert (large["bert"], large["times_fewer"]) == ("bert_large", 18.95)
    assert bert["parameters"] == {
        "token_embeddings": 30522 * 768,
        "position_embeddings": 512 * 768,
        "segment_embeddings": 2 * 768,
        "embedding_projection": 0,
        "attention": 12 * 4 * (768 * 768 + 768),
        "ffn": 12 * (2 * 768 * 3072 + 3072 + 768),
        "layer_norms": 25 * 2 * 768,
        "pooler": 768 * 768 + 768,
    }
    for row in (albert, bert, other, electra):
        assert sum(row["parameters"].values()) == row["total"]
    for name in ("gradients", "all_reduced"):
        assert albert[name] == 4 * albert["with_heads"]


def test_bytes_of_optimizer_and_gradients_are_those_of_a_step():
    model = make_model("pretraining")
    row, variables = facts.describe(model.config), model.trainable_variables
    bytes_of = lambda values: sum(4 * int(np.prod(v.shape)) for v in values)  # noqa: E731
    assert bytes_of(variables) == row["weights"] == row["gradients"]
    assert {v.dtype for v in variables} == {"float32"}
    for optimizer in (AdamW(1.0), Lamb(1.0)):
        optimizer.build(variables)
        slots = [optimizer.slot(v, name) for v in variables for name in "mv"]
        assert bytes_of(slots) == row["optimizer"]
        # All else is one number, or one for each weight.
        others = bytes_of(optimizer.variables) - row["optimizer"]
        assert others <= 4 * (len(variables) + 9)


def test_comparisons_with_the_paper():
    rows = {row.what: row for row in facts.comparisons()}
    assert len(rows) == 6 + 8 + 8
    wrong = {what for what, row in rows.items() if not row.agrees}
    assert wrong == {"Table 1: albert_xlarge", "Table 1: albert_xxlarge"}
    assert rows["Table 4: base, E=768, sharing=attention"].ours == 83_078_400


def test_weights_of_single_layers_have_a_column_only_if_a_model_has_some():
    config = AlbertConfig.from_preset("albert_base_v2")
    own = config.replace(depth_rank=8)
    assert "depth" not in facts.table({"a": config})
    title, _, first, second = facts.table({"a": config, "b": own}).splitlines()[:4]
    assert title == "parameters (millions)"
    assert "  0.00" in first and "  1.41" in second
    more = activations(own, 5, 7) - activations(config, 5, 7)
    assert more == 35 * 12 * 6 * 8


def test_activations_by_hand():
    config = AlbertConfig(
        embedding_size=2,
        hidden_size=6,
        num_attention_heads=3,
        intermediate_size=10,
        num_hidden_layers=4,
    )
    block = 9 * 6 + 2 * 10 + 2 * 3 * 7
    assert activations(config, 5, 7) == 35 * (2 * 2 + 4 * block)
    kept = 35 * (2 * 2 + 4 * 6 + block)
    assert activations(config, 5, 7, recompute=True) == kept
    row = facts.describe(config, 5, 7, bytes_per_value=2)
    assert row["activations"] == 2 * 35 * (2 * 2 + 4 * block)


def test_training_by_hand():
    config = AlbertConfig.from_preset("albert_base_v2")
    plan = facts.Training(1e9, ("123", "0.5"), utilization=0.25, cost_per_hour=3.0)
    row = facts.describe(config, sequence_length=128, training=plan)
    assert row["training_flops"] == 3e9 * config.flops_per_token(128)
    seconds = row["training_flops"] / (0.25 * 123e12)
    assert row["hours"]["123"] == pytest.approx(seconds / 3600)
    assert row["hours"]["0.5"] == pytest.approx(246 * row["hours"]["123"])
    assert row["cost"] == pytest.approx({p: 3 * h for p, h in row["hours"].items()})
    shown = facts.table({"base": config}, sequence_length=128, training=plan)
    *_, title, names, first, _ = shown.splitlines()
    assert title == "training at 25% of the peak (an assumption)"
    assert names.split() == ["FLOPs", "hours", "cost"]
    assert first.split() == ["base,", "123", "TFLOP/s", "5.2e+17", "4.7", "14.2"]
    without = facts.Training(1e9, ("123",))
    assert facts.describe(config, training=without)["cost"] == {}
    assert "  cost" not in facts.table({"base": config}, training=without)


@pytest.mark.parametrize("wrong", [(), ("0",), ("312", "-1"), ("nan",), ("A100",)])
def test_peaks_that_are_not_positive_are_refused(wrong):
    with pytest.raises(UsageError, match="--device_teraflops must be decimals above 0"):
        facts.Training(1e9, wrong)


@pytest.mark.parametrize("name", ["num_train_tokens", "utilization", "cost_per_hour"])
def test_other_values_that_are_not_positive_are_refused(name):
    for value in (0.0, -1.0, float("nan")):
        given = {"num_train_tokens": 1e9, "device_teraflops": ("1",), name: value}
        with pytest.raises(UsageError, match=f"--{name} must be .*received {value}"):
            facts.Training(**given)


def test_command(tmp_path, run_python):
    tool = ROOT / "tools/facts.py"
    result = run_python(tool)
    assert (result.returncode, result.stderr) == (0, "")
    assert "235M parameters in Table 1" in result.stdout
    heading, base = result.stdout.splitlines()[1:3]
    assert heading.split()[:4] == ["tokens", "positions", "segments", "projection"]
    assert base.split()[:3] == ["albert_base_v1", "3.84", "0.07"]
    assert "  9.4x base  " in base
    path = tmp_path / "config.json"
    AlbertConfig.from_preset("albert_base_v1", hidden_size=96).to_json(path)
    result = run_python(tool, f"--config_file={path}", "--json", "--batch_size=3")
    models = json.loads(result.stdout)["models"]
    assert list(models) == [str(path)]
    training = ("--num_train_tokens=8e9", "--device_teraflops=123,312")
    result = run_python(tool, "--preset=albert_base_v2", "--json", *training)
    (row,) = json.loads(result.stdout)["models"].values()
    assert list(row["hours"]) == ["123", "312"] and row["cost"] == {}
    result = run_python(tool, "--utilization=0.5")
    assert "--utilization: only used with --num_train_tokens" in result.stderr
    result = run_python(tool, "--preset=albert_huge")
    assert result.returncode == 2
    assert result.stderr.startswith("error: --preset: must be one of albert_b")
