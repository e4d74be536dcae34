"""The tables of a compiled step, with a compiler that only computes."""

import pytest

from albert_tf.errors import UsageError
from benchmarks import compiled, topics


def compile_step(request):
    layers, times = request["config"]["num_hidden_layers"], {"unrolled": 1, "loop": 3}
    passes = times[request["depth"]] * layers
    kinds = {"products": (2 * layers, 10**9), "head": (passes + 5, passes * 10**9)}
    return {"kinds": kinds, "temporaries": layers * 2**30}


def test_forms_of_the_depth_are_compared(monkeypatch):
    monkeypatch.setattr(compiled, "check_installed", lambda topology: None)
    monkeypatch.setitem(compiled.run.__kwdefaults__, "compiled", compile_step)
    values = {"write_batches": "", "compile_for": "h100", "shapes": ["64x512"]}
    values |= {"preset": "", "depth": ["unrolled", "loop"]}
    report = topics.measure("step", values)
    found = {row.name.partition("h100x1, ")[2]: row.value for row in report.rows}
    passes = "all but products and attention"
    assert found[f"unrolled: {passes}, GB, a layer"] == 1
    assert found[f"unrolled: {passes}, kernels, once"] == 5
    assert found[f"loop: {passes}, kernels, a step"] == 3 * 12 + 5
    assert found["loop, a layer: temporaries"] == 1
    for part in ("**albert_base_v2, 64 x 512, h100x1, loop**", "| products | 2.00 | "):
        assert part in report.text
    with pytest.raises(UsageError, match="--depth must be some of unrolled, loop, l"):
        topics.measure("step", values | {"depth": ["lop"]})
