"""Warm-up requests: what the server reads is what was meant."""

from albert_tf.export import warmup
from albert_tf.export.signatures import make_signatures
from albert_tf.models.classifiers import AlbertTextClassifier
from tests.export.signatures_test import CONFIG


def test_every_length_and_batch():
    model = AlbertTextClassifier(CONFIG, num_labels=2)
    made = warmup.make_requests(model, make_signatures(model, None), 100, (1, 8))
    shapes = {x["token_ids"].shape for name, x in made if name == "tokens"}
    lengths = (16, 32, 64, 100)
    assert shapes == {(size, length) for size in (1, 8) for length in lengths}
    assert {name for name, _ in made} == {
        "serving_default",
        "pair",
        "tokens",
        "preprocess",
        "embed",
        "embed_layer",
    }
    assert len(made) == 2 * 2 * 4 + 4
