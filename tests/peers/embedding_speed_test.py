"""The benchmark of vectors, on a model so small that it says nothing."""

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError
from tests import tiny

pytest.importorskip("sentence_transformers")

from benchmarks import embedding_speed

pytestmark = pytest.mark.peers
LIBRARY = "sentence-transformers"
SETTINGS = embedding_speed.Settings(
    init_checkpoint="",
    input_file="",
    spm_model_file=str(tiny.SPIECE),
    max_bytes=0,
    preset="tiny",
    max_seq_length=20,
    steps=2,
    precision="float32",
    num_texts=3,
    rounds=2,
    batch_sizes=(2,),
)


@pytest.fixture
def model(monkeypatch, tmp_path):
    """A random model in the library's format."""
    monkeypatch.setattr(AlbertConfig, "from_preset", lambda name: tiny.CONFIG)
    return embedding_speed.save_random(SETTINGS, "", str(tmp_path))


def test_trains_both_on_the_same_pairs(model, monkeypatch):
    rows = embedding_speed.train(SETTINGS, model, str(tiny.TEXT))
    title = "training, batches of 2 pairs, float32"
    theirs, ours, speedup = rows
    assert theirs.name == f"{title}: {LIBRARY}"
    assert speedup.name == f"{title}: albert_tf / {LIBRARY}"
    assert speedup.value == pytest.approx(ours.value / theirs.value)
    assert ours.details["relative difference of the loss"] < 1e-4
    assert len(ours.details["seconds"]) == len(theirs.details["seconds"]) == 2
    monkeypatch.setattr(embedding_speed, "_ours", lambda *given: (9.0, None))
    with pytest.raises(DataError, match="the losses differ"):
        embedding_speed.train(SETTINGS, model, str(tiny.TEXT))


@pytest.mark.broad
def test_encodes_with_every_program(model):
    pytest.importorskip("openvino")
    pytest.importorskip("tf2onnx")
    rows = {r.name: r for r in embedding_speed.encode(SETTINGS, model, str(tiny.TEXT))}
    assert len(rows) == 7
    theirs, ours = rows[f"encoding: {LIBRARY}"], rows["encoding: albert_tf"]
    assert ours.details["largest difference"] < 1e-5
    speedup = rows[f"encoding: albert_tf / {LIBRARY}"]
    assert speedup.value == pytest.approx(ours.value / theirs.value)
    assert all(
        x.details["largest difference"] < 0.1 for x in rows.values() if x.details
    )
