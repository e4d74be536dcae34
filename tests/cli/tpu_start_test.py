"""TensorFlow asks the cloud about a TPU only where the cloud answers."""

import http.server
import socket
import threading

import pytest

# Stand-ins for both packages are enough to see the variable.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import albert_tf.cli.run
from albert_tf.cli import tpu_start
assert "tensorflow" not in sys.modules
tpu_start._SERVER = sys.argv[2]
import tensorflow
"""
SHOW = 'import os\nprint("skip:", os.environ.get("TPU_SKIP_MDS_QUERY"))\n'


@pytest.fixture
def start(tmp_path, run_python):
    def run(server, libtpu=True, **variables):
        (tmp_path / "tensorflow.py").write_text(SHOW)
        if libtpu:
            (tmp_path / "libtpu.py").write_text("")
        done = run_python("-c", PROGRAM, tmp_path, server, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def nowhere():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture(params=["Google", "", None])
def server(request):
    """Returns the flavor that a server answers with, and its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            if request.param is not None:
                self.send_header("Metadata-Flavor", request.param)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield request.param, f"127.0.0.1:{one.server_port}"
        one.shutdown()


def test_outside_the_cloud_nothing_is_asked(start, nowhere):
    assert start(nowhere) == "skip: 1"


def test_only_the_metadata_server_counts(start, server):
    flavor, address = server
    expected = "skip: None" if flavor == "Google" else "skip: 1"
    assert start(address) == expected


def test_who_sets_the_variable_keeps_it(start, nowhere):
    assert start(nowhere, TPU_SKIP_MDS_QUERY="0") == "skip: 0"


def test_without_libtpu_there_is_nothing_to_skip(start, nowhere):
    assert start(nowhere, libtpu=False) == "skip: None"
