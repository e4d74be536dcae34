import json
import pathlib

import pytest

from albert_tf import facts
from albert_tf.config import PRESETS, AlbertConfig

ROOT = pathlib.Path(__file__).parents[1]
COUNTS = json.loads((ROOT / "tests/golden/param_counts.json").read_text())


@pytest.mark.parametrize("name", [n for n in PRESETS if n.startswith("albert")])
def test_counts_are_those_of_the_original(name):
    counted = COUNTS["google_modeling_py"][name]
    row = facts.describe(AlbertConfig.from_preset(name))
    parts = row["parameters"]
    assert parts["embeddings"] == counted["embeddings"]
    assert parts["embedding_projection"] == counted["embedding_hidden_mapping_in"]
    block = parts["attention"] + parts["ffn"] + parts["layer_norms"]
    assert block == counted["encoder_transformer"]
    assert row["total"] == counted["bert_scope_with_pooler"]
    assert row["with_heads"] == counted["with_pretraining_heads_total"]


def test_comparisons_with_the_paper():
    rows = {row.what: row for row in facts.comparisons()}
    assert len(rows) == 6 + 8 + 8
    wrong = {what for what, row in rows.items() if not row.agrees}
    assert wrong == {"Table 1: albert_xlarge", "Table 1: albert_xxlarge"}
    assert rows["Table 4: base, E=768, sharing=attention"].ours == 83_078_400


def test_activations_by_hand():
    config = AlbertConfig(
        embedding_size=2,
        hidden_size=6,
        num_attention_heads=3,
        intermediate_size=10,
        num_hidden_layers=4,
    )
    block = 9 * 6 + 2 * 10 + 2 * 3 * 7
    assert facts.activations(config, 5, 7) == 35 * (2 * 2 + 4 * block)
    kept = 35 * (2 * 2 + 4 * 6 + block)
    assert facts.activations(config, 5, 7, recompute=True) == kept
    row = facts.describe(config, 5, 7, bytes_per_value=2)
    assert row["activations"] == 2 * 35 * (2 * 2 + 4 * block)


def test_command(tmp_path, run_python):
    tool = ROOT / "tools/facts.py"
    result = run_python(tool)
    assert (result.returncode, result.stderr) == (0, "")
    assert "235M parameters in Table 1" in result.stdout
    path = tmp_path / "config.json"
    AlbertConfig.from_preset("albert_base_v1", hidden_size=96).to_json(path)
    result = run_python(tool, f"--config_file={path}", "--json", "--batch_size=3")
    models = json.loads(result.stdout)["models"]
    assert list(models) == [str(path)]
    result = run_python(tool, "--preset=albert_huge")
    assert result.returncode == 2
    assert result.stderr.startswith("error: --preset: must be one of albert_b")
