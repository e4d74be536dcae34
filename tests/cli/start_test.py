"""What is set before TensorFlow starts: queries about TPUs, oneDNN's kernels."""

import http.server
import os
import socket
import threading

import pytest

from albert_tf.cli import start
from albert_tf.errors import UsageError
from albert_tf.kernels.device import adds_in_order

# Stand-ins for both packages are enough to see the variable.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import albert_tf.cli.run
from albert_tf.cli import start
assert "tensorflow" not in sys.modules
start._SERVER = sys.argv[2]
import tensorflow
"""
SHOW = 'import os\nprint("skip:", os.environ.get("TPU_SKIP_MDS_QUERY"))\n'


@pytest.fixture
def shown(tmp_path, run_python, monkeypatch):
    def run(server, libtpu=True, **variables):
        (tmp_path / "tensorflow.py").write_text(SHOW)
        if libtpu:
            (tmp_path / "libtpu.py").write_text("")
        # JAX sets it in a process that finds no TPU, as this one may be.
        monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
        done = run_python("-c", PROGRAM, tmp_path, server, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_outside_the_cloud_nothing_is_asked(shown):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{one.getsockname()[1]}"
    assert shown(nowhere, libtpu=False) == "skip: None"
    assert shown(nowhere) == "skip: 1"
    assert shown(nowhere, TPU_SKIP_MDS_QUERY="0") == "skip: 0"


@pytest.mark.parametrize(
    ("flavor", "expected"), [("Google", "None"), ("", "1"), (None, "1")]
)
def test_only_the_metadata_server_counts(shown, flavor, expected):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            if flavor is not None:
                self.send_header("Metadata-Flavor", flavor)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        assert shown(f"127.0.0.1:{one.server_port}") == f"skip: {expected}"
        one.shutdown()


AVX512 = "processor : 0\nflags : fpu avx2 avx512f avx512vl\n"
AVX2 = "processor : 0\nflags : fpu avx2\n"


@pytest.mark.parametrize(
    ("precision", "cpu", "given", "expected"),
    [
        ("float32", AVX512, {}, "1"),
        ("float32", AVX512, {"TF_ENABLE_ONEDNN_OPTS": "0"}, "0"),
        ("bfloat16", AVX512, {}, None),
        ("float32", AVX2, {}, None),
        ("float32", None, {}, None),
    ],
)
def test_onednn_only_for_float32_with_avx512(
    tmp_path, monkeypatch, precision, cpu, given, expected
):
    info = tmp_path / "cpuinfo"
    if cpu:
        info.write_text(cpu)
    monkeypatch.setattr(start, "_CPU_INFO", info)
    monkeypatch.setattr(os, "environ", given)
    start.use_onednn(precision)
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == expected


CHOSEN = ("KERAS_BACKEND", "XLA_FLAGS")


@pytest.fixture
def environment(monkeypatch):
    left = {k: v for k, v in os.environ.items() if k not in CHOSEN}
    monkeypatch.setattr(os, "environ", left)
    monkeypatch.setattr(start.importlib.util, "find_spec", lambda name: name)
    return monkeypatch


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_the_backend_is_chosen_once(environment, backend):
    start.use_backend(backend)
    assert os.environ["KERAS_BACKEND"] == backend
    start.use_backend(backend)
    for other in {"tensorflow", "jax", "torch"} - {backend}:
        environment.setenv("KERAS_BACKEND", other)
        rule = f"--backend={backend}: .* KERAS_BACKEND names another one.*'{other}'"
        with pytest.raises(UsageError, match=rule):
            start.use_backend(backend)


def test_a_missing_backend_names_what_brings_it(environment):
    environment.setattr(start.importlib.util, "find_spec", lambda name: None)
    start.use_backend("tensorflow")
    environment.delenv("KERAS_BACKEND")
    with pytest.raises(UsageError, match=r"not installed: pip install .*\[jax\]"):
        start.use_backend("jax")


@pytest.mark.parametrize(
    "given, deterministic, expected",
    [
        ("", True, True),
        ("", None, False),  # the default, which was measured
        ("--a=1", True, True),
        ("--xla_gpu_deterministic_ops=false --xla_gpu_ftz=false", True, False),
        ("", False, False),
        ("--xla_gpu_deterministic_ops", False, True),
    ],
)
def test_xla_adds_in_order_unless_asked_otherwise(
    environment, given, deterministic, expected
):
    environment.setenv("XLA_FLAGS", given)
    start.use_backend("jax", deterministic)
    assert adds_in_order() == expected
    assert os.environ["XLA_FLAGS"].startswith(given)
    assert os.environ["XLA_FLAGS"].count("--xla_gpu_ftz=") == 1
