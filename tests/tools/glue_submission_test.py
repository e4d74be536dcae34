"""The command that makes the zip for the GLUE leaderboard."""

import zipfile

from tests.commands import run_command


def run(*arguments):
    return run_command("glue_submission", *arguments)


def test_the_zip_is_written_once_and_errors_are_one_line(tmp_path):
    folder = tmp_path / "runs" / "wnli"
    folder.mkdir(parents=True)
    rows = "".join(f"{i}\t{i % 2}\n" for i in range(146))
    (folder / "test_predictions.tsv").write_text("index\tprediction\n" + rows)
    others = "cola,sst2,mrpc,stsb,qqp,mnli,qnli,rte,ax"
    output = tmp_path / "glue.zip"
    arguments = [f"--prediction_dir={tmp_path / 'runs'}", f"--output_file={output}"]

    done = run(*arguments, f"--leave_out={others}")
    assert (done.code, done.err) == (0, "")
    assert str(output) in done.out
    with zipfile.ZipFile(output) as archive:
        assert archive.read("WNLI.tsv").decode() == "index\tprediction\n" + rows

    again = run(*arguments, f"--leave_out={others}")
    assert again.code == 2
    assert "exists already; give --overwrite" in again.err
