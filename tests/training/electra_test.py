"""Pretraining of ELECTRA: what a run leaves, what it starts from, what is refused."""

import functools
import json
import shutil
from unittest import mock

import numpy as np
import pytest

import albert_tf
from albert_tf.converters import nets
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.converters.load import open_checkpoint
from albert_tf.errors import UsageError
from albert_tf.storage import folders
from albert_tf.training import pretrain, pretrain_outputs
from albert_tf.training.finetune import Finetuning
from albert_tf.training.pretrain_settings import PretrainSettings
from tests import tiny
from tests.reports.parsed_page import ParsedPage
from tests.training import runs
from tests.training.runs import lines_of, run_pretraining

SMALL = {"embedding_size": 8, "hidden_size": 8, "num_hidden_layers": 1}
ELECTRA = {"objective": "electra", "generator_size": 0.5, "max_seq_length": 64}
ELECTRA |= {"max_predictions_per_seq": 10, "num_train_steps": 2, "log_steps": 1}
SHARING = ("tied", "disentangled", "none")


SETTINGS = {
    "tied": {"packing": True, "max_predictions_per_seq": None},
    "disentangled": {"ema_decay": 0.5, "export_weights": "average"},
    "none": {"precision": "bfloat16", "jit_compile": True},
    # One block for both nets, which the generator applies once.
    "block": {"share_encoder": True, "generator_size": None, "generator_layers": 0.5},
}
BROAD = [pytest.param(name, marks=pytest.mark.broad) for name in list(SETTINGS)[1:]]


@pytest.fixture(scope="module")
def run(records, tmp_path_factory):
    """Trains with settings, once: `run("tied")` is the folder, and what it got."""

    @functools.cache
    def train(sharing):
        data = records(pair_policy="segments", max_seq_length=64)
        given = {"input_file": data, "eval_file": data, **ELECTRA, "eval_steps": 1}
        given |= {"keep_best": "rtd_auc", "sample_texts": ("a [MASK]",)}
        if sharing in SHARING:
            given["embedding_sharing"] = sharing
        folder = tmp_path_factory.mktemp(sharing)
        sizes = SMALL | {"num_hidden_layers": 1 + (sharing == "block")}
        run_pretraining(folder, sizes, **given | SETTINGS[sharing])
        return folder / "run", given | SETTINGS[sharing]

    return train


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["tied", *BROAD])
def test_a_run_leaves_two_models(sharing, run, records, capfd):
    out, _ = run(sharing)
    said = capfd.readouterr().err
    assert "generator accuracy" in said and "RTD accuracy" in said
    for line in lines_of(out):
        whole = line["generator_loss"] + 50 * line["rtd_loss"]
        assert line["loss"] == pytest.approx(whole, rel=1e-5)
        assert 0 <= line["generator_accuracy"] <= 1 and 0 <= line["rtd_auc"] <= 1
        assert line["rtd_baseline"] >= 0.5
        assert not [name for name in line if name.startswith(("mlm", "sop"))]
    card = (out / "README.md").read_text()
    assert "| generator accuracy | RTD accuracy | RTD AUC |" in card
    assert "masking `electra`" in card and "objective `electra`" in card
    page = ParsedPage((out / "report.html").read_bytes())
    assert "RTD accuracy" in page.text and "RTD AUC" in page.text
    for name in ("model", "generator", "best", "best/generator"):
        folders.verify(out / name)
    runs.assert_evaluated_again(out, records(pair_policy="segments", max_seq_length=64))
    # Wherever it is loaded from, it is the same net.
    last = str(out / "checkpoints/step-2")
    ids = {"token_ids": np.arange(5, 21).reshape(2, 8)}
    for head, kind, folder in (
        ("auto", albert_tf.AlbertDiscriminator, "model"),
        ("masked_lm", albert_tf.AlbertMaskedLM, "generator"),
    ):
        found = albert_tf.from_pretrained(out / folder)
        assert type(found) is kind and not found.untrained_weights
        for place in (out, last):
            again = albert_tf.from_pretrained(place, head)
            np.testing.assert_array_equal(found(ids), again(ids))
    assert len(albert_tf.FillMask.from_pretrained(last)("The [MASK] sat.")) == 5
    samples = (out / "samples.jsonl").read_text().splitlines()
    assert len(samples) == 2 * (1 + (sharing == "disentangled"))


def test_no_older_model_stays_beside_a_newer_generator(tmp_path, monkeypatch):
    paths = [str(tmp_path / name) for name in ("generator", "model")]
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    nets_of = mock.Mock(return_value=dict.fromkeys(paths))
    writes = mock.Mock(side_effect=[None, KeyboardInterrupt])
    for name in ("_draw", "mark_trained", "from_model"):
        monkeypatch.setattr(pretrain_outputs, name, mock.Mock())
    monkeypatch.setattr(pretrain_outputs, "model_card", lambda *args: "")
    monkeypatch.setattr(pretrain_outputs, "_models", lambda *args: paths)
    monkeypatch.setattr(pretrain_outputs.nets, "split", nets_of)
    monkeypatch.setattr(pretrain_outputs, "write_files", writes)
    killed = mock.Mock(**{"folder.join": lambda name: str(tmp_path / name)})
    with pytest.raises(KeyboardInterrupt):
        pretrain_outputs.finish(killed, [])
    assert writes.call_count == 2 and not (tmp_path / "model").exists()


@pytest.mark.slow
def test_disentangled_tables_are_written_as_sums(tmp_path):
    config = albert_tf.AlbertConfig.from_dict({**runs.SIZES, **SMALL})
    options = {"generator_size": 0.5, "embedding_sharing": "disentangled"}
    model = albert_tf.ElectraPretrainer(config, seed=3, **options)
    rng = np.random.default_rng(0)
    for variable in model.backbone.embeddings.tables:
        variable.assign(rng.normal(size=variable.shape))
    albert_tf.save_pretrained(model, tmp_path / "both")
    batch = {"token_ids": rng.integers(5, 90, (2, 8)).astype("int32")}
    batch |= {"mask_positions": np.ones((2, 1), "int32")}
    batch |= {"mask_ids": np.ones((2, 1), "int32")}
    batch |= {"mask_weights": np.ones((2, 1)), "sample_draws": np.full((2, 1), 0.4)}
    outputs = model(batch)
    discriminator = albert_tf.from_pretrained(tmp_path / "both")
    generator = albert_tf.from_pretrained(tmp_path / "both/generator")
    np.testing.assert_allclose(
        discriminator({"token_ids": outputs["corrupted_ids"]}),
        outputs["discriminator_logits"],
        atol=1e-6,
    )
    inputs = {k: batch[k] for k in ("token_ids", "mask_positions")}
    np.testing.assert_array_equal(generator(inputs), outputs["generator_logits"])
    # Both start a run, in which the discriminator reads the same sums.
    albert_tf.save_pretrained(discriminator, tmp_path / "alone")
    for start, drawn in (("both", False), ("alone", True)):
        for sharing in SHARING:
            given = {**ELECTRA, "embedding_sharing": sharing, "seed": 3}
            again = start_of(tmp_path, tmp_path / start, **given)
            found = again({**batch, "token_ids": outputs["corrupted_ids"]})
            same = again.backbone({"token_ids": outputs["corrupted_ids"]})
            logits = again.discriminator(same["sequence_output"])
            expected = outputs["discriminator_logits"]
            np.testing.assert_allclose(logits, expected, atol=1e-5)
            assert np.isfinite(found["generator_logits"]).all()
            names = [n for n in again.untrained_weights if "generator" not in n]
            assert bool(again.untrained_weights) == drawn and not names


def start_of(folder, path, **given):
    """Returns the model that a run with this initial checkpoint would train."""
    given |= {"init_checkpoint": path, "albert_config_file": ""}
    values = runs.pretraining(folder, SMALL, **given)
    settings = PretrainSettings(**values)
    objective = pretrain.find_objective(settings)
    with open_checkpoint(path) as start:
        return pretrain.make_pretrainer(
            settings, start, start.config, objective.head, "float32"
        )


def refused(path, message):
    with (
        pytest.raises(UsageError, match=message),
        open_checkpoint(path) as checkpoint,
    ):
        nets.refuse_generator(checkpoint)


def test_generators_are_not_fine_tuned(tmp_path):
    config = albert_tf.AlbertConfig.from_preset(
        "electra_small", vocab_size=120, num_hidden_layers=1, intermediate_size=8
    )
    pair, copied = str(tmp_path / "pair"), str(tmp_path / "copied")
    albert_tf.save_pretrained(albert_tf.ElectraPretrainer(config, seed=1), pair)
    shutil.copytree(f"{pair}/generator", copied)
    shutil.copytree(pair, tmp_path / "run/best")
    best = str(tmp_path / "run/best")
    for path, place in (
        (f"{pair}/generator", f", {pair}"),
        (f"{best}/generator", f", {best}"),
        (copied, "; of a model without one, .* writes the encoder"),
    ):
        refused(path, f"give the discriminator{place}$")
    # One that learned masked words alone, as with --objective=roberta.
    words = tmp_path / "words"
    albert_tf.save_pretrained(albert_tf.AlbertMaskedLM(config), words)
    refused(words, "; of a model without one")
    convert_checkpoint(words, tmp_path / "encoder", "albert_tf", head=None)
    shutil.copytree(words, tmp_path / "run/model")
    (tmp_path / "run/run.json").write_text("{}")
    for path in (pair, tmp_path / "run/model", tmp_path / "encoder"):
        with open_checkpoint(path) as checkpoint:
            nets.refuse_generator(checkpoint)


@pytest.mark.parametrize("family", ["electra", "albert"])
def test_wide_generators_are_not_fine_tuned_elsewhere(family, tmp_path):
    config = tiny.make_model(family=family).config
    pair = albert_tf.ElectraPretrainer(config, generator_size=1.0, seed=1)
    albert_tf.save_pretrained(pair, tmp_path / "pair")
    shutil.copytree(tmp_path / "pair/generator", tmp_path / "copied")
    convert_checkpoint(tmp_path / "copied", tmp_path / "again", "albert_tf")
    for path in (tmp_path / "copied", tmp_path / "again"):
        refused(path, "is ELECTRA's generator, which is not fine-tuned; give the disc")


@pytest.mark.slow
def test_what_is_refused_names_the_right_folder(run, tmp_path, monkeypatch):
    out = tmp_path / "run"
    shutil.copytree(run("tied")[0], out)
    with pytest.raises(UsageError, match=r"model: is ELECTRA's disc.* generator/"):
        albert_tf.FillMask.from_pretrained(out / "model")
    table = runs.write_table(tmp_path / "train.tsv", 20, 1)
    tune = {"train_file": table, "dev_file": table, "num_train_steps": 2}
    with pytest.raises(UsageError, match=r"is ELECTRA's generator, .*run/model$"):
        runs.run(tmp_path / "tuned", init_checkpoint=str(out / "generator"), **tune)
    assert not (tmp_path / "tuned").exists()
    monkeypatch.setattr(Finetuning, "train", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        runs.run(tmp_path / "tuned", init_checkpoint=str(out), **tune)
    content = json.loads((tmp_path / "tuned/run.json").read_text())["content"]
    assert content["config"]["hidden_size"] == 8  # the generator's is half of it
    with pytest.raises(UsageError, match="its generator differs from --gen.*8"):
        start_of(tmp_path, out, **{**ELECTRA, "generator_size": 1.0})
    # A generator of another vocabulary.
    config = json.loads((out / "generator/config.json").read_text())
    config = albert_tf.AlbertConfig.from_dict(config).replace(vocab_size=31_000)
    albert_tf.save_pretrained(
        albert_tf.AlbertMaskedLM(config), out / "generator", overwrite=True
    )
    with pytest.raises(UsageError, match="one vocabulary, of 30000, received 31000"):
        start_of(tmp_path, out, **ELECTRA)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"objective": "albert", "temperature": 2.0},
            "--temperature=2.0 requires --obj",
        ),
        ({"objective": "bert", "share_encoder": True}, "requires --objective=electra"),
        ({"max_span": 3}, "--max_span=3 requires --objective=spanbert, received 'elec"),
        ({"generator_size": 0.0}, "--generator_size must be positive, received 0.0"),
        ({"embedding_sharing": "half"}, "one of tied, disentangled, none, received"),
        ({"keep_best": "mlm_loss"}, "--keep_best must be one of loss, generator_loss"),
        (
            {"optimizer": "lamb", "embedding_sharing": "disentangled"},
            "--optimizer=lamb: its trust ratio .* received 'disentangled'",
        ),
    ],
)
def test_settings_that_do_not_fit(given, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        given = {"objective": "electra", "eval_file": "x", **given}
        values = runs.pretraining(tmp_path, **given)
        pretrain.find_objective(PretrainSettings(**values))


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"preset": "electra_small"}, 0.25),
        ({"preset": "electra_base"}, 1 / 3),
        ({"preset": "electra_large"}, 0.25),
        ({"preset": "electra_albert_base"}, 1 / 3),
        ({"preset": "electra_base", "generator_size": 0.25}, 0.25),
        ({"preset": "albert_base_v2"}, 0.25),
        ({"preset": "albert_base_v2", "share_encoder": True}, 1.0),
    ],
)
def test_sizes_of_generators_that_are_not_given(given, size, tmp_path):
    given = {"objective": "electra", "albert_config_file": "", **given}
    settings = PretrainSettings(**runs.pretraining(tmp_path, **given))
    assert settings.generator_size == size


def test_generators_that_cannot_be_built_leave_no_folder(records, tmp_path):
    data = records(pair_policy="segments", max_seq_length=64)
    given = {"input_file": data, **ELECTRA, "share_encoder": True}
    with pytest.raises(UsageError, match="share_encoder: generator_size must be 1"):
        run_pretraining(tmp_path, SMALL, **given)
    with pytest.raises(UsageError, match="generator_size=0.875: .* 3 .* received 7"):
        config = {"hidden_size": 8, "num_attention_heads": 4}
        config = albert_tf.AlbertConfig.from_dict({**runs.SIZES, **config})
        albert_tf.ElectraPretrainer(config, generator_size=0.875)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_that_lost_a_model_makes_both_again(run, tmp_path):
    """As after a kill between the two; `kills_test` has kills at every moment."""
    whole, given = run("tied")
    shutil.copytree(whole, out := tmp_path / "run")
    shutil.rmtree(out / "model")
    # Both nets are those of the last checkpoint until then.
    for head, folder in (("auto", "model"), ("masked_lm", "generator")):
        found = albert_tf.from_pretrained(out, head)
        tiny.assert_same_weights(albert_tf.from_pretrained(whole / folder), found)
    # A damaged generator is made again, as a damaged model is.
    path = out / "generator/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    run_pretraining(tmp_path, SMALL, **given)
    runs.assert_same_run(whole, out)
