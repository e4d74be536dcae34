"""The card of an uploaded model has numbers of its own weights only."""

import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.converters.keras_model import from_model
from albert_tf.errors import UsageError
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.run_folder import RunFolder
from tests.tiny import CONFIG

NAME = "hf://owner/my-model"
NUMBERS = "| held out, step 6 | 5.1234 |"
CARD = f"# Model card\n\n![curves](curves.png)\n\n{NUMBERS}\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A pretraining run with its card, as far as loading its model needs it."""
    folder = tmp_path_factory.mktemp("runs") / "base"
    given = {"input_file": "x", "spm_model_file": "y", "preset": "albert_base_v2"}
    RunFolder(PretrainSettings(output_dir=str(folder), **given)).begin()
    model = albert_tf.AlbertMaskedLM(CONFIG, seed=1)
    albert_tf.save_pretrained(model, folder / "model")
    (folder / "README.md").write_text(CARD)
    return folder


def card_of(model, format="albert_tf"):
    return load.model_card(from_model(model), model.loaded_from, NAME, format)


def test_the_card_of_the_run_is_kept_as_long_as_its_weights_are(run):
    for path in (run, run / "model"):
        model = albert_tf.from_pretrained(path)
        front, _, text = card_of(model).partition("\n---\n\n")
        assert front == "---\nlibrary_name: albert_tf"
        # A figure that is not uploaded is left out.
        assert text == f"# Model card\n\n{NUMBERS}\n"
        assert NUMBERS in card_of(model, "huggingface")
    variable = model.weights[0]
    variable.assign(variable + 1e-3)
    assert NUMBERS not in card_of(model)
    # Without its head, the model is another one.
    assert NUMBERS not in card_of(albert_tf.from_pretrained(run, head=None))


def test_the_license_of_a_card_is_kept(run, tmp_path):
    albert_tf.from_pretrained(run).save_pretrained(tmp_path / "model")
    front = "---\nlicense: apache-2.0\nlibrary_name: other\n---\n"
    (tmp_path / "model/README.md").write_text(front + CARD)
    text = card_of(albert_tf.from_pretrained(tmp_path / "model"))
    assert text.startswith("---\nlibrary_name: albert_tf\nlicense: apache-2.0\n---\n")
    assert NUMBERS in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"push_to": "owner/name"}, "push_to: expected hf://owner/name"),
        ({"push_to": "hf://owner/name@main"}, "push_to: expected hf://owner/name"),
        ({"push_to": "kaggle://a/b/keras/c"}, "push_to: expected hf://owner/name"),
        ({"format": "tf1"}, "push_to: format must be one of albert_tf, hugg"),
        ({"path": "gs://bucket/model"}, "push_to: needs a folder on this machine"),
    ],
)
def test_what_cannot_be_uploaded_is_refused_before_it_is_written(
    run, tmp_path, change, message
):
    model = albert_tf.from_pretrained(run)
    values = {"path": tmp_path / "out", "push_to": NAME, **change}
    with pytest.raises(UsageError, match=message):
        model.save_pretrained(**values)
    assert not (tmp_path / "out").exists()


def test_two_nets_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(load.hubs, "upload", None)
    pair = albert_tf.ElectraPretrainer(CONFIG, seed=1)
    with pytest.raises(UsageError, match="push_to: ElectraPretrainer needs a folder"):
        pair.save_pretrained(tmp_path / "out", push_to=NAME)
    assert not (tmp_path / "out").exists()
