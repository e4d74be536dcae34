"""The model card shows what was measured, and when."""

import types

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.objectives.pretraining import ALBERT, BERT, ELECTRA
from albert_tf.training.pretrain_outputs import model_card
from albert_tf.training.pretrain_settings import PretrainSettings

METRICS = [
    {"split": "train", "step": 1000, "loss": 3.0, "mlm_accuracy": 0.25},
    {"split": "eval", "step": 500, "loss": 9.0, "mlm_accuracy": 0.01},
    {"split": "eval", "step": 750, "loss": 4.0, "mlm_accuracy": 0.125},
]


def card(
    objective=ALBERT,
    metrics=METRICS,
    keeps_masks=False,
    skipped=(),
    family="albert",
    **settings,
):
    places = {"input_file": "data", "output_dir": "out", "spm_model_file": "spm"}
    settings["objective"] = objective.name
    settings = PretrainSettings(preset="albert_base", **{**places, **settings})
    tokenizer = types.SimpleNamespace(sha256="123abc")
    return model_card(
        *(settings, AlbertConfig(family=family), objective, metrics, tokenizer),
        *(keeps_masks, skipped),
    ).splitlines()


def test_results_name_their_step():
    lines = card()
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


def test_a_card_says_what_only_its_objective_has():
    text = "\n".join(card(ELECTRA, family="electra", generator_layers=0.5))
    assert "ELECTRA encoder, " in text and "{" not in text
    assert "Trained with the net in `generator/`. Settings of the objective: " in text
    assert "`generator_size=0.25`, `generator_layers=0.5`, `emb" in text
    text = "\n".join(card())
    assert "ALBERT encoder, " in text and "of the objective" not in text


def test_the_whole_card():
    text = "\n".join(card())
    for part in ("# Model card", "## Training", "123abc", "## Results", "Made with"):
        assert part in text
    assert "masking `albert`, seed" in text and "Batches left out" not in text
    assert "learning rate 0.00176, schedule `original`" in text
    assert "average" not in text
    assert "{" not in text and "\n\n\n" not in text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"keeps_masks": True}, "; the masks stored in the records, seed"),
        (
            {"train_batch_size": 1024, "scale_learning_rate": True},
            "learning rate 0.00088 (0.00176 x sqrt(1024 / 4096))",
        ),
        (
            {
                "sequence_length_schedule": "128:124000,512:1000:96",
                "packing": True,
                "input_file": "of_{length}",
            },
            "124,000 steps of 4,096 packed rows of at most 128 tokens, then 1,000 steps"
            " of 96 packed rows of at most 512 tokens; objective",
        ),
        ({"packing": False}, "125,000 steps of 4,096 examples of at most 512 tokens;"),
        ({"ema_decay": 0.99}, "decay 0.99; this model has the last we"),
        (
            {"metrics": [METRICS[2] | {"ema_loss": 3.5, "ema_mlm_accuracy": 0.25}]},
            "| held out, averaged weights, step 750 | 3.5000 | 0.2500 |  |",
        ),
    ],
)
def test_the_card_says_what_was_done(settings, text):
    assert text in "\n".join(card(**settings))


def test_batches_left_out():
    entry = {"batch": 1000, "phase": 0, "diverged_at": 1011, "restored_step": 900}
    lines = card(skipped=[entry])
    assert "| batch | diverged at step | went back to step |" in lines
    assert lines[lines.index("|---|---|---|") + 1] == "| 1,000 | 1,011 | 900 |"
    lines = card(skipped=[entry, entry | {"phase": 500}])
    assert "| 1,000 | 500 | 1,011 | 900 |" in lines
