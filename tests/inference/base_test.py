"""What the classes that answer have in common."""

import pytest

from albert_tf.errors import UsageError
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.fill_mask import FillMask
from albert_tf.inference.multiple_choice import MultipleChoice
from albert_tf.inference.predictor import Predictor
from albert_tf.inference.question_answerer import QuestionAnswerer
from albert_tf.inference.token_classifier import TokenClassifier


@pytest.mark.parametrize(
    "kind",
    [
        Classifier,
        Embedder,
        FillMask,
        MultipleChoice,
        Predictor,
        QuestionAnswerer,
        TokenClassifier,
    ],
)
def test_all_are_loaded_in_the_same_way(kind):
    assert "from_pretrained" not in vars(kind)
    with pytest.raises(UsageError, match=f"head must be one of {kind.heads[0]}.*'x'"):
        kind.from_pretrained("absent", head="x")
