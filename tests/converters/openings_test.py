"""A command opens each checkpoint once: archives are large, and so are digests."""

import tarfile

import pytest

import albert_tf
from albert_tf.converters import keras_model, load
from albert_tf.converters.convert import convert_checkpoint
from tests.openings import count_openings
from tests.tiny import CONFIG, SPIECE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder with a masked LM and a tokenizer."""
    path = tmp_path_factory.mktemp("models") / "mlm"
    model = albert_tf.AlbertMaskedLM(CONFIG, seed=1)
    albert_tf.save_pretrained(model, path, tokenizer=SPIECE)
    return path


@pytest.fixture(scope="module")
def archive(folder):
    """The same folder as an archive."""
    path = folder.parent / "mlm.tar.gz"
    with tarfile.open(path, "w:gz") as f:
        f.add(folder, "mlm")
    return path


def convert(source, tmp_path):
    convert_checkpoint(source, tmp_path / "out", "huggingface")
    return 2  # the source, and the target for verification


def from_pretrained(source, tmp_path):
    albert_tf.from_pretrained(source)
    return 1


def one_door(source, tmp_path):
    with load.open_checkpoint(source) as checkpoint:
        assert checkpoint.make_tokenizer().vocab_size == checkpoint.config.vocab_size
        keras_model.build_model(checkpoint, "masked_lm")
    return 1


# Each takes a checkpoint and a folder, and returns how many paths it needs to open.
COMMANDS = [convert, from_pretrained, one_door]


@pytest.mark.parametrize("kind", ["folder", "archive"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_each_checkpoint_is_opened_once(command, kind, request, tmp_path, monkeypatch):
    source = request.getfixturevalue(kind)
    counts = count_openings(monkeypatch)
    paths = command(source, tmp_path)
    assert set(counts.values()) == {1}
    opened = [path for what, path in counts if what == "open"]
    assert len(opened) == paths
    assert str(source) in opened
    extracted = [path for what, path in counts if what == "extract"]
    assert extracted == ([str(source)] if kind == "archive" else [])


def test_the_tokenizer_is_built_once(folder):
    with load.open_checkpoint(folder) as checkpoint:
        assert checkpoint.make_tokenizer() is checkpoint.make_tokenizer()


def test_writing_builds_the_tokenizer_once(folder, tmp_path):
    built = []
    with load.open_checkpoint(folder) as checkpoint:
        build = checkpoint.tokenizer
        checkpoint.tokenizer = lambda: built.append(1) or build()
        load.write_checkpoint(checkpoint, tmp_path / "m", "huggingface")
    assert len(built) == 1
