"""Where oneDNN's kernels are turned on."""

import os

import pytest

from albert_tf.cli import onednn

AVX512 = "processor : 0\nflags : fpu avx2 avx512f avx512vl\n"
AVX2 = "processor : 0\nflags : fpu avx2\n"


@pytest.mark.parametrize(
    ("precision", "cpu", "given", "expected"),
    [
        ("float32", AVX512, None, "1"),
        ("float32", AVX512, "0", "0"),
        ("bfloat16", AVX512, None, None),
        ("float32", AVX2, None, None),
        ("float32", None, None, None),
    ],
)
def test_only_for_float32_with_avx512(
    tmp_path, monkeypatch, precision, cpu, given, expected
):
    info = tmp_path / "cpuinfo"
    if cpu:
        info.write_text(cpu)
    monkeypatch.setattr(onednn, "_CPU_INFO", info)
    environment = {} if given is None else {"TF_ENABLE_ONEDNN_OPTS": given}
    monkeypatch.setattr(os, "environ", environment)
    onednn.choose(precision)
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == expected
