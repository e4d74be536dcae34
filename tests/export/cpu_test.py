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


def test_flags(use_cpu):
    use_cpu("avx2")
    assert cpu.flags() == {"fpu", "sse2", "avx2"}


@pytest.mark.parametrize("flags", [AMX, "avx512f avx512_bf16", "avx512f amx_bf16"])
def test_a_cpu_that_has_it(use_cpu, flags, caplog):
    use_cpu(flags)
    assert cpu.has_bfloat16()
    cpu.check("bfloat16", will_run=True)
    assert not caplog.text


def test_a_cpu_that_imitates_it(use_cpu, caplog):
    use_cpu("avx2 avx512f")
    assert not cpu.has_bfloat16()
    cpu.check("float32", will_run=True)
    assert not caplog.text
    cpu.check("bfloat16", will_run=True)
    assert "this one has neither. On such CPUs the model was 3.7 times" in caplog.text


def test_a_cpu_that_may_abort(use_cpu, caplog):
    use_cpu("avx2")
    cpu.check("float32", will_run=True)
    with pytest.raises(UsageError, match="received a CPU without AVX-512. Export on"):
        cpu.check("bfloat16", will_run=True)
    cpu.check("bfloat16", will_run=False)
    assert "this one has neither" in caplog.text


def test_an_unknown_cpu(use_cpu, caplog):
    use_cpu(None)
    assert cpu.flags() == frozenset() and not cpu.has_bfloat16()
    cpu.check("bfloat16", will_run=True)
    assert "cannot tell what this machine has" in caplog.text
