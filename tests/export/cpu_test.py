"""Whether a CPU computes bfloat16 itself."""

import pytest

from albert_tf.errors import UsageError
from albert_tf.export import cpu

AMX = "avx2 avx512f avx512_bf16 amx_bf16"
CPU_INFO = "processor\t: 0\nflags\t\t: fpu sse2 {}\nbugs\t\t: none\n\nflags\t: other\n"


@pytest.fixture
def use_cpu(monkeypatch, tmp_path):
    def use(flags):
        file = tmp_path / "cpuinfo"
        if flags is not None:
            file.write_text(CPU_INFO.format(flags))
        monkeypatch.setattr(cpu, "_CPU_INFO", file)

    return use


@pytest.mark.parametrize(
    ("flags", "has_it", "warning"),
    [
        (AMX, True, ""),
        ("avx512f avx512_bf16", True, ""),
        ("avx512f amx_bf16", True, ""),
        ("avx2 avx512f", False, "neither. On such CPUs the model was 3.7 times"),
        (None, False, "cannot tell what this machine has"),
    ],
)
def test_cpus_that_run_it(use_cpu, flags, has_it, warning, caplog):
    use_cpu(flags)
    assert cpu.flags() == ({"fpu", "sse2", *flags.split()} if flags else set())
    assert cpu.has_bfloat16() == has_it
    cpu.check("float32", will_run=True)
    assert not caplog.text
    cpu.check("bfloat16", will_run=True)
    assert warning in caplog.text and bool(warning) == bool(caplog.text)


def test_a_cpu_that_may_abort(use_cpu, caplog):
    use_cpu("avx2")
    with pytest.raises(UsageError, match="received a CPU without AVX-512. Export on"):
        cpu.check("bfloat16", will_run=True)
    cpu.check("bfloat16", will_run=False)
    assert "this one has neither" in caplog.text
