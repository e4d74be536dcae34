"""The commands as a person meets them: help, flags, errors, exit codes."""

import os
import subprocess
import sys
import textwrap

import pytest

from tests.commands import run_command
from tools import main as dispatch

TOOL = '''
"""Counts sheep.

At night.
"""
from absl import flags, logging
from albert_tf.cli.flags import define_alias
from albert_tf.cli.run import run

_STEPS = flags.DEFINE_integer("steps", 3, "How many.", lower_bound=1)
_RATE = flags.DEFINE_float("rate", 0.0, "How fast.")
_INPUT = flags.DEFINE_string("input_file", None, "Which flock.", required=True)
_DRY = flags.DEFINE_bool("dry", False, "Do nothing.")
_KIND = flags.DEFINE_enum("kind", "ewe", ["ewe", "ram"], "Kind of sheep.")
define_alias("num_steps", "steps")

def main():
    logging.info("counting")
    {body}

run(main)
'''
ERROR = "from albert_tf.errors import DataError, Stopped, UsageError\n    "
MAKE = "from albert_tf.storage import files; files.make_folder('{}')"


@pytest.fixture
def run_tool(tmp_path, run_python):
    """Runs a tool with this body of `main`, with variables in a process of its own."""

    def run(*arguments, body="print(_STEPS.value, _INPUT.value)", **variables):
        file = tmp_path / "sheep.py"
        file.write_text(TOOL.replace("{body}", body))
        if variables:
            return run_python(str(file), *arguments, **variables)
        done = run_command(str(file), *arguments)
        return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)

    return run


def assert_one_line(result, code: int, *parts: str):
    errors = [line for line in result.stderr.splitlines() if "counting" not in line]
    assert len(errors) == 1, result.stderr
    assert errors[0].startswith("error: ")
    for part in parts:
        assert part in errors[0]
    assert result.returncode == code


def test_flags_and_aliases(run_tool):
    def given(*steps):
        return run_tool("--input_file=a", *steps)

    assert given("--steps", "5").stdout == "5 a\n"
    assert given("--num_steps=6", "--num_steps=7", "--steps=7").stdout == "7 a\n"
    result = given("--steps=5", "--num_steps=7")
    assert_one_line(result, 2, "--num_steps=7: --steps=5 was given, too")
    result = given("--num_steps=7", "--steps", "5")
    assert_one_line(result, 2, "--steps=5: --num_steps=7 was given, too")


@pytest.mark.parametrize("flag", ["--help", "-h", "-help"])
def test_help(run_tool, flag):
    result = run_tool(flag)
    assert (result.returncode, result.stderr) == (0, "")
    usage = "usage: albert-tf sheep [--flag=value ...]\n"
    assert result.stdout.startswith(f"Counts sheep.\n\nAt night.\n\n{usage}")
    shown = result.stdout
    assert shown.index("inputs:") < shown.index("others:")
    assert "--steps                   How many (also --num_steps; default: 3)" in shown
    assert "Which flock (required)" in shown and "--[no]dry " in shown
    assert "How fast (default: 0.0)" in shown and "Do nothing\n" in shown
    assert "--verbosity" not in shown and "--num_steps " not in shown
    assert "--helpfull" in shown and "--debug" in shown


def test_helpfull(run_tool):
    shown = run_tool("--helpfull").stdout
    assert "--steps\n      How many. (also --num_steps; default: 3)" in shown
    assert "flags of absl.logging:" in shown


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--step=3"], ["--step:", "did you mean --steps?"]),
        (["--num_step=3"], ["--num_step:", "did you mean --steps?"]),
        (["--file=3"], ["--file:", "did you mean --input_file?"]),
        (["--xyzzy"], ["--xyzzy: unknown flag", "--help"]),
        (["--steps=many"], ["--steps must be", "integer", "many"]),
        (["--steps=0"], ["--steps must be positive, received 0"]),
        (["--num_steps=many"], ["--steps must be", "integer", "many"]),
        (["--rate=fast"], ["--rate must be a number, received 'fast'"]),
        (["--kind=cow"], ["--kind must be one of ewe, ram, received 'cow'"]),
        (["--dry=perhaps"], ["--dry must be true or false"]),
        (["--steps"], ["--steps", "missing"]),
        ([], ["--input_file", "required"]),
        (["--input_file=a", "b"], ["'b'", "--name=value"]),
    ],
)
def test_flags_that_cannot_be_used(run_tool, arguments, parts):
    assert_one_line(run_tool(*arguments), 2, *parts)


def test_arguments_that_are_no_flags(tmp_path, run_python):
    file = tmp_path / "sheep.py"
    text = TOOL.replace("def main():", "def main(names):")
    text = text.replace("run(main)", 'run(main, "SHEEP")')
    file.write_text(text.replace("{body}", "print(names, _STEPS.value)"))
    for arguments in (["a", "b", "--steps=5"], ["--steps=5", "a", "b"]):
        result = run_python(str(file), "--input_file=x", *arguments)
        assert (result.returncode, result.stdout) == (0, "['a', 'b'] 5\n")
    result = run_python(str(file), "--input_file=x")
    assert_one_line(result, 2, "SHEEP: required, but not given")
    result = run_python(str(file), "a", "--input_file=x", "--step=2")
    assert_one_line(result, 2, "did you mean --steps?")
    usage = "usage: albert-tf sheep SHEEP ... [--flag=value ...]"
    assert usage in run_python(str(file), "--help").stdout


@pytest.mark.parametrize(
    ("body", "code", "parts"),
    [
        (ERROR + "raise UsageError('--steps: at most 9')", 2, ["--steps: at"]),
        (ERROR + "raise DataError('a.txt: it\\nis empty')", 1, ["a.txt: it is empty"]),
        ("open('absent.txt')", 1, ["absent.txt: No such file or directory"]),
        ("open('.')", 1, [".: Is a directory"]),
        ("raise PermissionError(13, 'Permission denied', 'x')", 2, ["x: Permission"]),
        ("raise OSError(28, 'No space left on device', 'x')", 1, ["x: the disk is fu"]),
        ("raise OSError('unable to open')", 1, ["unable to open"]),
        ("raise ImportError('pip install albert_tf[export]')", 1, ["albert_tf[exp"]),
        ("raise KeyboardInterrupt", 130, ["interrupted"]),
        ("raise ValueError('boo')", 70, ["ValueError: boo", "bug", "--debug"]),
        ("assert False", 70, ["AssertionError", "--debug"]),
        (MAKE.format("/proc/x/y"), 2, ["/proc/x/y"]),
        (MAKE.format("/dev/null/x"), 2, ["/dev/null/x"]),
        ("__import__('os').mkdir('/dev/null/x')", 2, ["/dev/null/x"]),
    ],
)
def test_errors_are_one_line(run_tool, body, code, parts):
    assert_one_line(run_tool("--input_file=a", body=body), code, *parts)


@pytest.mark.parametrize(
    ("body", "code", "last"),
    [
        ("raise Stopped('at step 3', 'SIGINT')", 130, "at step 3"),
        ("raise Stopped('at step 3', 'SIGTERM')", 143, "at step 3"),
        ("raise SystemExit(3)", 3, "counting"),
    ],
)
def test_other_ends_of_a_run(run_tool, body, code, last):
    result = run_tool("--input_file=a", body=ERROR + body)
    assert (result.returncode, result.stderr.splitlines()[-1]) == (code, last)


@pytest.mark.parametrize("how", [["--debug"], []])
def test_debug_shows_the_traceback(run_tool, how):
    variables = {} if how else {"ALBERT_TF_DEBUG": "1"}
    body = "raise ValueError('boo')"
    result = run_tool("--input_file=a", *how, body=body, **variables)
    assert result.returncode == 70
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1] == "error: ValueError: boo"


@pytest.mark.slow
def test_tensorflow_file_errors_and_silence(run_tool):
    body = "import tensorflow as tf; tf.io.gfile.GFile('absent.txt').read()"
    done = run_tool("--input_file=a", body=body, ALBERT_TF_DEBUG="0")
    assert_one_line(done, 1, "absent.txt")


def test_an_ascii_locale(run_tool, tmp_path):
    path = tmp_path / "grüße.txt"
    body = "open(_INPUT.value, 'w'); print(ascii(_INPUT.value), '▁', chr(0xD800))"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for variables in (ascii_only, {"PYTHONIOENCODING": "ascii"}):
        result = run_tool(f"--input_file={path}", body=body, **variables)
        assert result.returncode == 0, result.stderr
        assert "gr\\xfc\\xdfe.txt" in result.stdout and path.exists()
        path.unlink()


def test_closed_output_is_silent(run_tool, tmp_path):
    run_tool("--help")  # Writes the file.
    file = tmp_path / "sheep.py"
    file.write_text(TOOL.replace("{body}", "print('sheep\\n' * 100_000)"))
    command = f"{sys.executable} {file} --input_file=a"
    path = os.pathsep.join([str(dispatch.__file__).rsplit("/tools", 1)[0]])
    for end, code, output in (("| head -1", 141, "sheep\n"), (">&-", 0, "")):
        result = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{command} {end}"],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert (result.returncode, result.stdout) == (code, output), result.stderr
        assert "rror" not in result.stderr


def test_ctrl_c(tmp_path, run_python):
    child = textwrap.dedent("""
        import subprocess, sys, signal
        # A background job of a shell ignores it, and its children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        child = subprocess.Popen(sys.argv[1:], stdout=-1, stderr=-1, text=True)
        assert child.stdout.readline() == "ready\\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate()
        print(child.returncode, errors.splitlines()[-1])
    """)
    file = tmp_path / "sheep.py"
    body = "import time; print('ready', flush=True); time.sleep(60)"
    file.write_text(TOOL.replace("{body}", body))
    result = run_python("-c", child, sys.executable, str(file), "--input_file=a")
    assert result.stdout == "130 error: interrupted\n", result.stderr


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_albert_tf_lists_the_verbs(capsys, arguments):
    assert dispatch.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()[2:-2]
    listed = dict(line.split(None, 1) for line in lines)
    assert list(listed) == list(dispatch.verb_files())


def test_listing_does_not_import_tensorflow(run_python):
    code = "import sys; from tools import main; main.main([]); print(*sys.modules)"
    modules = run_python("-c", code).stdout.splitlines()[-1].split()
    assert not {"tensorflow", "keras", "numpy"} & set(modules)


def test_albert_tf_version_and_unknown_verbs(capsys):
    assert dispatch.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("albert_tf 0.")
    for verb, message in (
        ("xyzzy", "error: unknown verb 'xyzzy'; the verbs are train_tokenizer, "),
        ("fill-mask", "error: unknown verb 'fill-mask'; did you mean 'fill_mask'?\n"),
    ):
        assert dispatch.main([verb, "--text=a"]) == 2
        assert capsys.readouterr().err.startswith(message)


def test_log_lines_have_no_prefix(run_tool):
    done = run_tool("--input_file=x", body="logging.warning('few sheep')")
    assert done.stderr.splitlines() == ["counting", "warning: few sheep"]


@pytest.mark.parametrize(
    ("arguments", "message", "expected"),
    [
        (["--input_file=x"], "rate: must be low", "--rate: must be low"),
        (["--input_file=x"], "steps must be few", "--steps must be few"),
        (["--input_file=x"], "wool: none left", "wool: none left"),
        # A file of the user's that is called like a flag.
        (["--input_file=rate"], "rate: no such file", "rate: no such file"),
        (["--input_file", "rate"], "rate: no such file", "rate: no such file"),
    ],
)
def test_an_argument_is_named_as_its_flag(run_tool, arguments, message, expected):
    for kind in ("UsageError", "DataError"):
        done = run_tool(*arguments, body=ERROR + f"raise {kind}({message!r})")
        line = done.stderr.splitlines()[-1]
        # A usage error also says where a value comes from that nobody typed.
        assert line.partition("; this is the default of")[0] == f"error: {expected}"
