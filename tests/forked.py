"""Starts Python programs as copies of a process that has imported TensorFlow already.

Importing TensorFlow, Keras and the package takes a core about ten seconds, a copy a
tenth of one. Use `[*forked.PYTHON, "-m", "some.module", ...]` in place of
`[sys.executable, ...]` where a test needs a process, but not one that is new from its
first import on. The process that is started passes on its arguments, variables, folder,
open files and signals, and ends as the copy ends. The first one starts the server that
makes the copies, which ends with its owner: the session of pytest, or the build of the
documentation. Without one, it becomes an ordinary Python.
"""

import contextlib
import fcntl
import gc
import json
import os
import pathlib
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import zlib

PYTHON = [sys.executable, "-S", os.path.abspath(__file__)]
# Process of pytest that all workers belong to, set by conftest.py, or of Sphinx.
OWNER = "ALBERT_TF_TESTS_PID"
# Variables that are read by imports: there is a server for each of their values.
_EARLY = ("KERAS_BACKEND", "PYTHONHASHSEED", "PYTHONUTF8", "TF_CPP_MIN_LOG_LEVEL")
# With JAX nearly all time goes into compiling: this takes half of it on CPUs, and what
# one process has compiled the others of a session load.
_JAX = {
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: list[str]) -> None:
    """Lets a copy run a program, and ends as it does."""
    if OWNER not in os.environ:
        os.execv(sys.executable, [sys.executable, *arguments])
    if os.environ.get("KERAS_BACKEND") == "jax":
        cache = {"JAX_COMPILATION_CACHE_DIR": _cache()}
        os.environ.update(_JAX | cache | os.environ)
    connection = _connect()
    request = [arguments, dict(os.environ), os.getcwd()]
    socket.send_fds(connection, [b"\n"], [0, 1, 2])
    connection.sendall(json.dumps(request).encode() + b"\n")
    answers = connection.makefile("r")
    pid = int(answers.readline())
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(answers.readline())
    if code < 0:  # ended by this signal
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def write_program(path: pathlib.Path, *arguments: str) -> None:
    """Writes a program that is a copy which runs `python ARGUMENTS`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = shlex.join([*PYTHON, *arguments])
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _cache() -> str:
    """Returns the folder of the programs that this session has compiled."""
    return os.path.join(tempfile.gettempdir(), f"albert_tf-{os.environ[OWNER]}-jax")


def _connect() -> socket.socket:
    """Returns a connection to the server, and starts it if nobody has."""
    early = json.dumps([os.environ.get(name) for name in _EARLY])
    name = f"albert_tf-{os.environ[OWNER]}-{zlib.crc32(early.encode()):08x}"
    address = os.path.join(tempfile.gettempdir(), name)
    with open(f"{address}.lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(address):
            server = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--serve", address],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                close_fds=True,
            )
            while not os.path.exists(address):
                if server.poll() is not None:
                    sys.exit(f"the server of {__file__} ended with {server.returncode}")
                time.sleep(0.02)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def serve(address: str) -> list[str]:
    """Makes copies until the tests have ended.

    Returns:
        In a copy, what it is to run.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[0] = root
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    import albert_tf.training.finetune
    import albert_tf.training.pretrain  # noqa: F401

    owner = int(os.environ[OWNER])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)
    listener.settimeout(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()  # or each copy would write to all of this memory
    while _is_alive(owner):
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return _copy(connection)
            connection.close()
    for path in (address, f"{address}.lock"):
        os.remove(path)
    shutil.rmtree(_cache(), ignore_errors=True)
    os._exit(0)


def _is_alive(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


def _copy(connection: socket.socket) -> list[str]:
    """Makes a copy that takes the place of the process at the other end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.settimeout(None)
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    arguments, variables, folder = json.loads(connection.makefile("r").readline())
    if pid := os.fork():
        for number in files:
            os.close(number)
        _wait_for(pid, connection)
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    buffering = 1 if variables.get("PYTHONUNBUFFERED") else -1
    sys.stdout = open(1, "w", buffering, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
    paths = variables.get("PYTHONPATH", "").split(os.pathsep)
    # The first entry is the folder of a script.
    sys.path[1:1] = [path for path in paths if path and path not in sys.path[1:]]
    return arguments


def _wait_for(pid: int, connection: socket.socket) -> None:
    """Tells the other end how a copy ended; ends it when nobody listens any more."""
    owner = int(os.environ[OWNER])
    connection.sendall(f"{pid}\n".encode())
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if select.select([connection], [], [], 0.02)[0] or not _is_alive(owner):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def run(arguments: list[str]) -> None:
    """Runs a program as `python ARGUMENTS` does."""
    kind, *rest = arguments
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), module.__dict__)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        run(serve(sys.argv[2]))
    else:
        main(sys.argv[1:])
