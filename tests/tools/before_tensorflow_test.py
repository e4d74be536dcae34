"""What is wrong without TensorFlow is said before TensorFlow is imported."""

import pytest

CODE = """
import runpy, sys
tool = sys.argv.pop(1)
try:
    runpy.run_module(f"tools.{tool}", run_name="__main__", alter_sys=True)
except SystemExit as e:
    started = sorted({"tensorflow", "keras"} & set(sys.modules))
    sys.exit(f"TensorFlow was started: {started}" if started else e.code)
"""
FINETUNE = "--output_dir=out --init_checkpoint=none --train_file={tsv}"


@pytest.fixture
def paths(tmp_path):
    tsv = tmp_path / "a.tsv"
    tsv.write_text("text\tlabel\na good film\t1\na bad one\t0\n")
    return {"tsv": tsv}


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (f"finetune {FINETUNE} --num_train_steps=0", 2, "--num_train_steps must be"),
        (f"finetune {FINETUNE} --learning_rate=nan", 2, "--learning_rate must be"),
        (
            f"finetune {FINETUNE} --num_train_epochs=1 --num_train_steps=1",
            2,
            "--num_train_epochs: cannot be combined with num_train_steps",
        ),
    ],
)
def test_mistakes(paths, tmp_path, run_python, command, code, message):
    words = command.format(**paths).split()
    done = run_python("-c", CODE, *words, cwd=tmp_path)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
