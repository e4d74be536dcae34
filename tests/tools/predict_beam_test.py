"""`predict_beam` says what to install; tests/inference/beam_test.py has the rest."""

import importlib.util

import pytest

from tests.imports import ROOT


@pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is not None, reason="Beam is installed"
)
def test_beam_is_missing(run_python):
    given = ("--saved_model=m", "--input_file=a.txt", "--output_file=b")
    result = run_python(str(ROOT / "tools/predict_beam.py"), *given)
    assert result.returncode == 2
    assert "needs Apache Beam: pip install albert_tf[beam]" in result.stderr
