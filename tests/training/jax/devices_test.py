"""Where the hosts of a TPU slice are found."""

import http.server
import threading

import pytest

pytest.importorskip("jax")

from albert_tf.errors import DataError, Stopped
from albert_tf.training.jax import devices

XlaError = devices.jax.errors.JaxRuntimeError
LOST = "another worker of the run does not answer"


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
    monkeypatch.setattr(devices, "_initialize", lambda _: connected.append(True))
    monkeypatch.setattr(devices.jax, "devices", lambda kind: [kind])
    assert devices._tpus(600) == ["tpu"]
    assert bool(connected) == connects


@pytest.mark.parametrize(
    "error, line, codes",
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed"), LOST, [1]),
        (XlaError("UNAVAILABLE: closed"), LOST, [1]),
        (XlaError("DEADLINE_EXCEEDED: barrier"), LOST, [1]),
        (XlaError("INTERNAL: x\nCoordination service has stopped"), LOST, [1]),
        (XlaError("INTERNAL: NCCL: remote process exited or"), LOST, [1]),
        # What this worker alone has is said by it.
        (XlaError("RESOURCE_EXHAUSTED: memory\nmore"), "XLA: RESOURCE_EXH.*ory$", [1]),
        (XlaError("INTERNAL: UNAVAILABLE kernel"), "XLA: INTERNAL: UNA.*nel$", [1]),
        # What all have, or what does not come from XLA.
        (ValueError("another"), "^another$", []),
        (Stopped("stopped"), "^stopped$", []),
        # JAX would wait for the others at the exit, and abort.
        (KeyboardInterrupt("interrupted"), "^interrupted$", [130]),
    ],
)
def test_a_lost_worker_is_told_from_other_errors(monkeypatch, error, line, codes):
    left = []
    monkeypatch.setattr(devices, "is_one_of_several", lambda given: True)
    monkeypatch.setattr(devices, "_leave_at_once", left.append)
    expected = DataError if line == LOST or line[:3] == "XLA" else type(error)
    with pytest.raises(expected, match=line), devices.worker_errors(None):
        raise error
    assert left == codes


ABORTS = """
import ctypes
from albert_tf.training.jax import devices
devices._end_in_one_line()
ctypes.CDLL(None).abort()
"""


@pytest.mark.slow
def test_a_process_that_jax_aborts_says_why(run_python):
    done = run_python("-c", ABORTS, KERAS_BACKEND="jax")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: JAX has ended this process")


@pytest.mark.parametrize("timeout, expected", [(7.0, 7), (0, devices._A_YEAR)])
def test_hosts_wait_as_long_as_they_are_told(monkeypatch, timeout, expected):
    given = {}
    monkeypatch.setattr(devices, "_hosts", lambda: "a,b")
    monkeypatch.setattr(devices, "_end_in_one_line", lambda: None)
    monkeypatch.setattr(devices.jax.config, "update", lambda *_: None)
    monkeypatch.setattr(devices.jax.distributed, "initialize", given.update)
    monkeypatch.setattr(devices.jax, "devices", lambda kind: [kind])
    devices._tpus(timeout)
    assert given["initialization_timeout"] == expected
    assert given["heartbeat_timeout_seconds"] == 40


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


@pytest.fixture
def programs(monkeypatch):
    """Compiles a function again and again; returns the number that was read."""
    import jax

    read = []
    event = "/jax/compilation_cache/cache_hits"
    listen = lambda name, **_: read.extend([name] * (name == event))  # noqa: E731
    jax.monitoring.register_event_listener(listen)

    def run(*arguments):
        with devices.compilation_cache(*map(str, arguments)):
            for _ in range(2):
                jax.jit(lambda x: x * 3 + 1)(2.0)
                jax.clear_caches()
        assert jax.config.jax_compilation_cache_dir is None
        count = len(read)
        read.clear()
        return count

    yield run
    jax.monitoring.unregister_event_listener(listen)


def test_programs_are_kept_in_a_folder_and_read_again(programs, tmp_path):
    usual, asked = tmp_path / "run/cache", tmp_path / "asked"
    assert programs("", usual) == 1 and programs("", usual) == 2
    assert programs(asked, usual) == 1 and list(asked.glob("jit_*"))
    assert programs("none", usual) == 0
    # Runs inside another command's `with` statement use its folder.
    outer, inner = (devices.compilation_cache("", f"{p}") for p in (asked, usual))
    with outer, inner:
        assert devices.jax.config.jax_compilation_cache_dir == str(asked)
    # XLA's cache of tuned kernels lies there, too.
    assert "autotune" in devices.jax.config.jax_persistent_cache_enable_xla_caches


def test_a_folder_that_cannot_be_written_is_done_without(programs, tmp_path, caplog):
    (tmp_path / "file").touch()
    assert programs(tmp_path / "file", "") == 0
    assert caplog.messages == [f"no --compilation_cache={tmp_path}/file: File exists"]
    caplog.clear()
    assert programs(tmp_path / "file/x", "") == 0
    assert caplog.messages[0].endswith("Not a directory")
    assert programs("", "gs://bucket/run/cache") == 0
