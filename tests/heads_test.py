import pytest

from albert_tf import heads
from albert_tf.models.base import ConfiguredModel


@pytest.mark.parametrize("row", heads.all_rows(), ids=lambda row: row.name)
def test_every_row_names_a_model(row):
    assert heads.find(row.name) is row
    model = row.load_class()
    assert issubclass(model, ConfiguredModel)
    assert model.__name__ == row.keras_class.split(".")[1]


def test_parts():
    assert heads.HEADS["pretraining"].parts == ("mlm_head", "sop_head")
    assert not heads.HEADS["masked_lm"].has_classifier
    assert heads.HEADS["multiple_choice"].has_classifier
    assert heads.BACKBONE.parts == ()


def test_importing_the_rows_imports_no_model(run_python):
    code = "import sys, albert_tf.heads; print('keras' in sys.modules)"
    assert run_python("-c", code).stdout.strip() == "False"


def test_properties_of_rows():
    with_masked_lm = [row.name for row in heads.all_rows() if row.has_masked_lm]
    assert with_masked_lm == ["pretraining", "masked_lm"]
    with_choices = [row.name for row in heads.all_rows() if row.input_rank == 3]
    assert with_choices == ["multiple_choice"]
