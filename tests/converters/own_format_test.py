import functools
import json
import logging
import os
import shutil
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import albert_tf
from albert_tf.converters import own_format
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError, UsageError
from albert_tf.models.base import weight_names
from tests import tiny
from tests.tiny import SPIECE, make_model

CONFIG = tiny.CONFIG.replace(vocab_size=41, num_hidden_layers=3, initializer_range=0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a text classifier."""
    path = tmp_path_factory.mktemp("models") / "classifier"
    model = albert_tf.AlbertTextClassifier(CONFIG, num_labels=3, seed=1)
    albert_tf.save_pretrained(model, path, labels=["x", "y", "z"])
    return path


def test_a_manifest_must_list_the_config(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(DataError, match="does not list config.json"):
        albert_tf.from_pretrained(copy, head=None)


def test_wrong_labels_and_tokenizer(folder, tmp_path):
    with pytest.raises(UsageError, match="has no labels"):
        albert_tf.from_pretrained(folder, num_labels=3, head=None)
    with pytest.raises(UsageError, match="has 3, received 4"):
        albert_tf.from_pretrained(folder, head="text_classifier", num_labels=4)

    model = albert_tf.AlbertTextClassifier(CONFIG, num_labels=3, seed=1)
    with pytest.raises(UsageError, match="2 names for a model with 3 labels"):
        albert_tf.save_pretrained(model, tmp_path / "m", labels=["a", "b"])
    with pytest.raises(UsageError, match="30000 pieces.*vocab_size is 41"):
        albert_tf.save_pretrained(model, tmp_path / "m", tokenizer=SPIECE)


def test_a_classifier_that_is_missing(folder):
    message = "config.json: a text_classifier needs classifier/kernel, which"
    with own_format.read(str(folder)) as checkpoint:
        del checkpoint.tensors["classifier/kernel"]
        with pytest.raises(DataError, match=message):
            checkpoint.set_head({"head": "text_classifier"}, "config.json")


def test_the_class_of_another_classifier_is_named(folder):
    message = "is a text_classifier, not a token_classifier; albert_tf.Classifier loads"
    with pytest.raises(UsageError, match=message):
        albert_tf.TokenClassifier.from_pretrained(folder, SPIECE)


def test_a_head_that_was_never_loaded_says_so(folder, caplog):
    expected = pytest.warns(albert_tf.UntrainedWeightsWarning, match="mlm_head/dense/k")
    with expected as seen, caplog.at_level(logging.WARNING, logger="absl"):
        model = albert_tf.from_pretrained(folder, head="pretraining", seed=5)
    # One visible line, which points at the caller.
    assert len(seen) == 1 and seen[0].filename == __file__
    assert not caplog.text
    with pytest.warns(albert_tf.UntrainedWeightsWarning) as seen:
        albert_tf.AlbertQuestionAnswering.from_pretrained(folder)
    assert len(seen) == 1 and seen[0].filename == __file__
    missing = [n for n in weight_names(model) if n.split("/")[0] != "backbone"]
    assert model.untrained_weights == sorted(missing)
    assert 0.01 < model.mlm_head.dense.kernel.numpy().std() < 0.03
    np.testing.assert_array_equal(model.mlm_head.layer_norm.gamma, np.ones(6))


def assert_silent(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error", albert_tf.UntrainedWeightsWarning)
        call()


@pytest.mark.usefixtures("eager")
def test_predict_warns_once_until_fit(folder, tmp_path):
    batch = {"token_ids": np.ones((4, 5), np.int32)}
    model = albert_tf.from_pretrained(folder, head="token_classifier", seed=5)
    expected = "predict computes with initial values of classifier/bias, classifier/ker"
    with pytest.warns(albert_tf.UntrainedWeightsWarning, match=expected):
        model.predict(batch, verbose=0)
    assert_silent(lambda: model.predict(batch, verbose=0))
    other = albert_tf.from_pretrained(folder, head="token_classifier", seed=6)
    model.save_weights(tmp_path / "w.weights.h5")
    other.load_weights(tmp_path / "w.weights.h5")
    assert other.untrained_weights == []
    # What was never trained is still known after saving and loading.
    albert_tf.save_pretrained(model, tmp_path / "m")
    model = albert_tf.from_pretrained(tmp_path / "m", head="auto")
    assert model.untrained_weights == ["classifier/bias", "classifier/kernel"]
    model.compile("sgd", "mse", run_eagerly=True)
    labels = np.zeros((4, 5, 2), np.float32)
    assert_silent(lambda: model.fit(batch, labels, verbose=0))
    assert model.untrained_weights == []
    assert_silent(lambda: model.predict(batch, verbose=0))


def test_fit_marks_only_what_it_trained(folder):
    with pytest.warns(albert_tf.UntrainedWeightsWarning):
        model = albert_tf.from_pretrained(folder, head="pretraining", seed=5)
    batch = {"token_ids": np.ones((4, 5), np.int32)}
    batch["mask_positions"] = np.array([[1]] * 4)
    model.compile("sgd", {"sop_logits": "mse"}, run_eagerly=True)
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        model.fit(batch, {"sop_logits": np.ones((4, 2), np.float32)}, verbose=0)
    assert {name.partition("/")[0] for name in model.untrained_weights} == {"mlm_head"}


@given(st.data())
def test_fuzz_config(data):
    """Whatever a config.json holds, only a ValueError comes of it."""
    values = json.loads(json.dumps(CONFIG.to_dict()))
    values.pop("format", None)
    extra = st.sampled_from(["model_type", "architectures", "layer_norm_eps", "format"])
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=4)
        | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
        | st.sampled_from(["albert", "bert", "gelu", "all", "albert_tf"])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        key = data.draw(st.sampled_from(sorted(values)) | extra | st.text(max_size=3))
        values[key] = data.draw(scalars)
    try:
        config = albert_tf.AlbertConfig.from_dict(values)
    except ValueError as e:
        assert "\n" not in str(e)
    else:
        assert config.vocab_size > 0


def test_adapters_share_the_block_of_the_folder_around_them(tmp_path, tokenizer):
    base = tmp_path / "base"
    albert_tf.save_pretrained(make_model("pretraining"), base, tokenizer=tokenizer)
    config = tiny.CONFIG.replace(depth_rank=2, depth_embedding=True)
    models = {}
    for name in ("one", "two"):
        model = albert_tf.from_pretrained(
            base, "text_classifier", config=config, seed=1
        )
        for variable in weight_names(model).values():
            if "depth_" in variable.path or "classifier" in variable.path:
                variable.assign_add(np.full(variable.shape, 0.1 * (1 + len(models))))
        models[name] = model
        where = base / "adapters" / name
        albert_tf.save_pretrained(model, where, base=base)
        names = {*os.listdir(where)}
        assert names == {"config.json", "manifest.json", "model.safetensors"}
    moved = base.rename(tmp_path / "moved")
    for name, model in models.items():
        again = albert_tf.from_pretrained(moved / "adapters" / name)
        tiny.assert_same_weights(again, model)
        assert again.preprocessor.tokenizer.sha256 == tokenizer.sha256
        assert again.config == config
    convert = functools.partial(convert_checkpoint, format="albert_tf", base=moved)
    convert(moved / "adapters/one", moved / "adapters/three", verify="none")
    three = albert_tf.from_pretrained(moved / "adapters/three")
    tiny.assert_same_weights(three, models["one"])
    for target, changes, message in (
        (tmp_path / "x", {}, "must be inside, such as .*adapters/NAME, rec.*x"),
        (moved / "x", {"format": "tf1"}, "base: format must be albert_tf, rec.*tf1"),
        (moved / "x", {}, "must have the same backbone/.*train=depth --init_c"),
    ):
        with pytest.raises(UsageError, match=message):
            randomized = tiny.randomize(make_model("text_classifier"))
            albert_tf.save_pretrained(randomized, target, **{"base": moved, **changes})
    options = {"overwrite": True, "tokenizer": tokenizer}
    shutil.move(moved / "adapters", tmp_path / "adapters")
    albert_tf.save_pretrained(make_model("pretraining", seed=9), moved, **options)
    shutil.move(tmp_path / "adapters", moved / "adapters")
    with pytest.raises(DataError, match="is an adapter of another model than the one"):
        albert_tf.from_pretrained(moved / "adapters/one")
