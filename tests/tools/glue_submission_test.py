"""The command that makes the zip for the GLUE leaderboard."""

import pathlib
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/main.py"), "glue_submission", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_the_zip_is_written_once_and_errors_are_one_line(tmp_path):
    folder = tmp_path / "runs" / "WNLI"
    folder.mkdir(parents=True)
    rows = "".join(f"{i}\t{i % 2}\n" for i in range(146))
    (folder / "test_predictions.tsv").write_text("index\tprediction\n" + rows)
    others = "cola,sst2,mrpc,stsb,qqp,mnli,qnli,rte,ax"
    output = tmp_path / "glue.zip"
    arguments = [f"--prediction_dir={tmp_path / 'runs'}", f"--output_file={output}"]

    missing = run(*arguments)
    assert missing.returncode == 1
    assert missing.stderr.count("\n") == 1
    assert "no predictions of cola,sst2," in missing.stderr
    assert not output.exists()

    done = run(*arguments, f"--leave_out={others}")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(output) in done.stdout
    with zipfile.ZipFile(output) as archive:
        assert archive.read("WNLI.tsv").decode() == "index\tprediction\n" + rows

    again = run(*arguments, f"--leave_out={others}")
    assert again.returncode == 2
    assert "exists already; give --overwrite" in again.stderr

    wrong = run(*arguments, "--overwrite", "--predictions=wnli")
    assert wrong.returncode == 2
    assert "expected TASK=PATH" in wrong.stderr
