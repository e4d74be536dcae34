"""What is wrong without TensorFlow is said before TensorFlow is imported."""

import importlib.util
import json
import shutil

# All commands in one process: exit code, stderr and what is imported after each.
CODE = """
import contextlib, importlib.util, io, json, sys
from absl import flags
from albert_tf.cli import run

# As if these extras were not installed.
sys.modules["pyarrow"] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "onnx" else find(name, *a)
results = []
for verb, *arguments in map(str.split, json.loads(sys.argv[1])):
    before = set(flags.FLAGS)
    sys.argv = [verb, *arguments]
    tool, error = importlib.import_module(f"tools.{verb}"), io.StringIO()
    with contextlib.redirect_stderr(error):
        code = run._run(tool.main, sys.argv)
    imported = sorted({"tensorflow", "keras"} & set(sys.modules))
    results.append([code, error.getvalue(), imported])
    flags.FLAGS.remove_flag_values([n for n in flags.FLAGS if n not in before])
    del sys.modules[f"tools.{verb}"]
print(json.dumps(results))
"""
FINETUNE = "finetune --output_dir=out --init_checkpoint=m --train_file=a.tsv"
PRETRAIN = (
    "pretrain --preset=albert_base_v2 --output_dir=out --input_file=r.tfrecord "
    "--spm_model_file=m/spiece.model"
)
PREDICT = "predict --output_file=out.tsv --model="
TABLE = "--input_file=a.tsv"
BAD = "--text_column=body"
NO_FILE = "none: no such file or folder"
NO_COLUMN = "a.tsv: no column 'body'"
NO_RUNNER = "--runner: Nonsense cannot be used"
if importlib.util.find_spec("apache_beam") is None:
    NO_RUNNER = "--runner: needs Apache Beam: pip install albert_tf[beam]"
SERVED = ("id_column=i", "exit=layers:1", "max_seq_length=8", "split=dev")
# Command -> flags, exit code, message.
MISTAKES = {
    FINETUNE: [
        ("--num_train_steps=0", 2, "--num_train_steps must be positive"),
        ("--num_train_epochs=1 --num_train_steps=1", 2, "cannot be combined with num"),
        (BAD, 1, NO_COLUMN),
        ("--dev_file=none.tsv", 1, "none.tsv: "),
        ("--init_checkpoint=none", 1, NO_FILE),
        ("--output_dir=m", 2, "m exists already"),
    ],
    "finetune --output_dir=out --init_checkpoint=m --tfds_data_dir=sets": [
        ("--data_dir=tfds:glue/sst2 --task=sst2", 1, "glue/sst2: not prepared in sets"),
    ],
    PRETRAIN: [
        ("--input_file=none", 1, "none: no record file matches"),
        ("--spm_model_file=none", 1, "none: "),
        ("--init_checkpoint=none", 1, NO_FILE),
        ("--preset=none", 2, "--preset=none: "),
        ("--max_seq_length=1024", 2, "at most max_position_embeddings=512"),
    ],
    "evaluate --model=m": [
        ("", 2, "exactly one of --eval_file and --data_dir"),
        (f"--eval_file=a.tsv {BAD}", 1, NO_COLUMN),
        ("--eval_file=none.tsv", 1, "none.tsv: "),
        ("--eval_file=a.tsv --model=none", 1, NO_FILE),
        ("--eval_file=a.tsv --model=mlm", 2, "mlm: has no trained classifier"),
        ("--eval_file=a.tsv --task=wnut17", 2, "token_classifier"),
        ("--eval_file=a.tsv --report_file=no/r.html", 2, "there is no folder no"),
        ("--task=sst2 --data_dir=tfds:glue/sst2 --text_column=x", 2, "text_column"),
    ],
    f"{PREDICT}m": [
        ("", 2, "exactly one of --input_file and --data_dir"),
        (f"{TABLE} {BAD}", 1, NO_COLUMN),
        ("--input_file=none.csv", 1, "none.csv: "),
        ("--input_file=a.pq", 2, "needs pyarrow"),
        (f"{TABLE} --task=foo", 2, "--task must be one of cola, "),
        (f"{TABLE} --task=squad1", 2, "needs a model with the"),
        (f"{TABLE} --task=mnli", 1, "those of task mnli"),
        (f"{TABLE} --max_seq_length=99", 2, "embeddings=24"),
        (f"{TABLE} --output_file=x.json", 2, "texts are written as .tsv, .csv, .jsonl"),
        (f"{TABLE} --output_file=a.tsv", 2, "exists already; give --overwrite"),
        (f"{TABLE} --output_file=no/x.tsv", 2, "no/x.tsv: there is no folder no"),
        (f"{TABLE} --on_bad_input=skip", 2, "predict answers every example"),
        (f"{TABLE} --runner=Nonsense", 2, NO_RUNNER),
        (f"{TABLE} --signature=tag", 2, "--signature: only with a SavedModel, not wi"),
        ("--task=sst2 --data_dir=glue", 1, "glue"),
    ],
    f"{PREDICT}mlm {TABLE}": [("", 2, "mlm: has no trained classifier")],
    f"{PREDICT}qa {TABLE}": [("", 2, "answers to questions are written as")],
    f"{PREDICT}nli --task=mnli": [
        (
            "--data_dir=glue",
            2,
            "expected one of test_matched, test_mismatched, received",
        ),
    ],
    f"{PREDICT}served {TABLE}": [
        (f"--{flag}", 2, f"--{flag.split('=')[0]}: not with a SavedModel, received ")
        for flag in SERVED
    ],
    "embed --model=m --input_file=a.tsv": [
        (f"--output_file=o.npy {BAD}", 1, NO_COLUMN),
        ("--output_file=o.npy --model=none", 1, NO_FILE),
        ("--output_file=o.parquet", 2, "pip install albert_tf[parquet]"),
    ],
    "export --model=m --output_dir=o": [
        ("--format=onnx", 2, "onnx needs onnx; pip"),
        ("--model=none", 1, NO_FILE),
        (f"--format=litert --eval_file=a.tsv {BAD}", 1, NO_COLUMN),
        ("--spm_model_file=none", 1, "none: "),
    ],
    "convert_checkpoint --input=m --format=tf1": [
        ("--output=o --input=none", 1, NO_FILE),
        ("--output=m", 2, "m: exists already"),
        ("--output=o --head=masked_lm", 1, "m: holds no mlm_head"),
    ],
    "fill_mask --text=[MASK]": [
        ("--model=none", 1, NO_FILE),
        ("--model=m", 2, "m: has no trained mlm_head"),
    ],
}


def test_mistakes(tmp_path, run_python, model_folder):
    for name, head, labels in (
        ("m", "text_classifier", ("0", "1")),
        ("nli", "text_classifier", ("contradiction", "entailment", "neutral")),
        ("mlm", "masked_lm", None),
        ("qa", "question_answering", None),
    ):
        shutil.copytree(model_folder(head, labels=labels), tmp_path / name)
    (tmp_path / "served").mkdir()
    (tmp_path / "glue").mkdir()
    (tmp_path / "served/saved_model.pb").touch()
    (tmp_path / "a.tsv").write_text("text\tlabel\na good film\t1\na bad one\t0\n")
    (tmp_path / "r.tfrecord").write_bytes(b"")
    (tmp_path / "a.pq").write_bytes(b"PAR1")
    mistakes = [
        (f"{command} {flags}", code, message)
        for command, cases in MISTAKES.items()
        for flags, code, message in cases
    ]
    commands = json.dumps([command for command, *_ in mistakes])
    done = run_python("-c", CODE, commands, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    wrong = []
    for (command, code, message), (*ends, err, imported) in zip(
        mistakes, found, strict=True
    ):
        last = err.strip().split("\n")[-1]
        is_named = last.startswith("error: ") and message in last
        if not is_named or (ends, imported) != ([code], []):
            wrong.append((command, ends, last, imported))
    assert not wrong
