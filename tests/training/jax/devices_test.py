"""Where the hosts of a TPU slice are found."""

import http.server
import threading

import pytest

pytest.importorskip("jax")

from albert_tf.errors import DataError
from albert_tf.training.jax import devices


@pytest.fixture
def metadata(monkeypatch):
    """Answers as the metadata server of a TPU VM; None for one without such hosts."""
    monkeypatch.delenv("TPU_WORKER_HOSTNAMES", raising=False)
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            known = self.path == devices._ENDPOINTS
            assert known and self.headers["Metadata-Flavor"] == "Google"
            answer = answers["text"]
            self.send_response(404 if answer is None else 200)
            self.end_headers()
            self.wfile.write((answer or "a,b").encode())

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{server.server_port}")
        yield answers
        server.shutdown()


@pytest.mark.parametrize("text", ["a,b,c", "x:0:10.0.0.1,x:1:10.0.0.2", "a", None])
def test_a_tpu_vm_asks_the_metadata_server(metadata, text):
    metadata["text"] = text
    assert devices._hosts() == (text or "")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TPU_WORKER_HOSTNAMES", "c,d", "c,d"),
        ("TPU_WORKER_HOSTNAMES", "localhost", "localhost"),
        # As JAX sets it on a machine without a TPU.
        ("TPU_SKIP_MDS_QUERY", "1", ""),
    ],
)
def test_what_the_environment_says_counts(metadata, monkeypatch, name, value, expected):
    metadata["text"] = "a,b"
    monkeypatch.setenv(name, value)
    assert devices._hosts() == expected


def test_a_server_that_does_not_answer_is_no_slice(metadata, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    assert devices._hosts() == ""


@pytest.mark.parametrize("hosts, connects", [("a,b", True), ("a", False), ("", False)])
def test_only_a_slice_of_several_hosts_is_connected(monkeypatch, hosts, connects):
    connected = []
    monkeypatch.setattr(devices, "_hosts", lambda: hosts)
    monkeypatch.setattr(devices, "_initialize", lambda: connected.append(True))
    monkeypatch.setattr(devices.jax, "devices", lambda kind: [kind])
    assert devices._tpus() == ["tpu"]
    assert bool(connected) == connects


@pytest.mark.parametrize(
    "error, is_lost",
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"), True),
        (devices.jax.errors.JaxRuntimeError("UNAVAILABLE: closed"), True),
        (devices.jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: memory"), False),
        (ValueError("another"), False),
    ],
)
def test_a_lost_worker_is_named(monkeypatch, error, is_lost):
    monkeypatch.setattr(devices, "is_one_of_several", lambda given: True)
    monkeypatch.setattr(devices.atexit, "register", lambda function: None)
    expected = pytest.raises(DataError if is_lost else type(error))
    with expected as found, devices.worker_errors(None):
        raise error
    assert ("another worker of the run" in str(found.value)) == is_lost


@pytest.mark.parametrize(
    "distribution, hosts, expected",
    [
        ("tpu", "a,b", True),
        ("tpu", "a", False),
        ("mirrored", "a,b", False),
        ("multi_worker", "", True),
    ],
)
def test_who_takes_several_processes(monkeypatch, distribution, hosts, expected):
    monkeypatch.setattr(devices, "_hosts", lambda: hosts)
    assert devices.takes_several_processes(distribution) == expected
