"""The model card shows what was measured, and when."""

import types

from albert_tf.config import AlbertConfig
from albert_tf.objectives.pretraining import ALBERT, BERT
from albert_tf.reports import model_card
from albert_tf.training.pretrain_settings import PretrainSettings

METRICS = [
    {"split": "train", "step": 1000, "loss": 3.0, "mlm_accuracy": 0.25},
    {"split": "eval", "step": 500, "loss": 9.0, "mlm_accuracy": 0.01},
    {"split": "eval", "step": 750, "loss": 4.0, "mlm_accuracy": 0.125},
]


def card(objective, metrics, settings=None, **kwargs):
    settings = settings or PretrainSettings(
        input_file="data", output_dir="out", spm_model_file="spm", preset="albert_base"
    )
    tokenizer = types.SimpleNamespace(sha256="123abc")
    return model_card.describe(
        settings, AlbertConfig(), objective, metrics, tokenizer, **kwargs
    ).splitlines()


def test_results_name_their_step():
    lines = card(ALBERT, METRICS)
    assert "| data | loss | MLM accuracy | SOP accuracy |" in lines
    assert "| training, up to step 1,000 | 3.0000 | 0.2500 |  |" in lines
    assert "| held out, step 750 | 4.0000 | 0.1250 |  |" in lines
    assert not [line for line in lines if "constant answer" in line]


def test_columns_are_the_terms_of_the_objective():
    extra = {"nsp_accuracy": 0.75, "mlm_baseline": 0.1, "nsp_baseline": 0.5}
    lines = card(BERT, [*METRICS[:2], METRICS[2] | extra])
    assert "| data | loss | MLM accuracy | NSP accuracy |" in lines
    assert "| held out, step 750 | 4.0000 | 0.1250 | 0.7500 |" in lines
    assert "| best constant answer, held out |  | 0.1000 | 0.5000 |" in lines


def test_sections():
    text = "\n".join(card(ALBERT, METRICS))
    for part in ("# Model card", "## Training", "123abc", "## Results", "Made with"):
        assert part in text


def test_masks_are_those_of_the_records_or_of_the_settings():
    stored = "\n".join(card(ALBERT, METRICS, keeps_masks=True))
    assert (
        "the masks stored in the records" in stored and "`albert`, seed" not in stored
    )
    assert "masking `albert`, seed" in "\n".join(card(ALBERT, METRICS))


def test_scaled_learning_rate_is_named_with_its_rule():
    settings = PretrainSettings(
        input_file="data",
        output_dir="out",
        spm_model_file="spm",
        preset="albert_base",
        train_batch_size=1024,
        scale_learning_rate=True,
    )
    text = "\n".join(card(ALBERT, METRICS, settings))
    assert "learning rate 0.00088 (0.00176 x sqrt(1024 / 4096))" in text
    assert "learning rate 0.00176, schedule `original`" in "\n".join(
        card(ALBERT, METRICS)
    )


def test_averages_have_their_own_row_and_the_card_says_what_the_model_has():
    extra = {"ema_loss": 3.5, "ema_mlm_accuracy": 0.25}
    settings = PretrainSettings(
        input_file="data",
        output_dir="out",
        spm_model_file="spm",
        preset="albert_base",
        ema_decay=0.99,
    )
    lines = card(ALBERT, [*METRICS[:2], METRICS[2] | extra], settings)
    assert "| held out, averaged weights, step 750 | 3.5000 | 0.2500 |  |" in lines
    assert [line for line in lines if "decay 0.99; this model has the last we" in line]
    assert not [line for line in card(ALBERT, METRICS) if "average" in line]
