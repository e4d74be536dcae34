"""What is wrong without TensorFlow is said before TensorFlow is imported."""

import json

from albert_tf.converters.load import save_pretrained
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.text.load import load_tokenizer
from tests.tiny import CONFIG, SPIECE

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
BAD = "--text_column=body"
# Command, exit code, message.
MISTAKES = [
    (f"{FINETUNE} --num_train_steps=0", 2, "--num_train_steps must be positive"),
    (f"{FINETUNE} --learning_rate=nan", 2, "--learning_rate must be positive"),
    (
        f"{FINETUNE} --num_train_epochs=1 --num_train_steps=1",
        2,
        "--num_train_epochs: cannot be combined with num_train_steps",
    ),
    (f"{FINETUNE} {BAD}", 1, "a.tsv: no column 'body'"),
    (f"{FINETUNE} --dev_file=none.tsv", 1, "none.tsv: "),
    (
        "finetune --output_dir=out --init_checkpoint=m --data_dir=tfds:glue/sst2 "
        "--tfds_data_dir=sets --task=sst2",
        1,
        "tfds:glue/sst2: not prepared in sets",
    ),
    (f"{FINETUNE} --init_checkpoint=none", 1, "none: no such file or folder"),
    (f"{FINETUNE} --output_dir=m", 2, "m exists already"),
    (f"{PRETRAIN} --input_file=none", 1, "none: no record file matches"),
    (f"{PRETRAIN} --spm_model_file=none", 1, "none: "),
    (f"{PRETRAIN} --init_checkpoint=none", 1, "none: no such file or folder"),
    (f"{PRETRAIN} --preset=none", 2, "--preset=none: "),
    (f"{PRETRAIN} --max_seq_length=1024", 2, "at most max_position_embeddings=512"),
    (f"evaluate --model=m --eval_file=a.tsv {BAD}", 1, "a.tsv: no column 'body'"),
    ("evaluate --model=m --eval_file=none.tsv", 1, "none.tsv: "),
    ("evaluate --model=none --eval_file=a.tsv", 1, "none: no such file or folder"),
    (
        f"predict --model=m --input_file=a.tsv --output_file=o.tsv {BAD}",
        1,
        "a.tsv: no column 'body'",
    ),
    ("predict --model=m --input_file=none.csv --output_file=o.tsv", 1, "none.csv: "),
    (
        f"embed --model=m --input_file=a.tsv --output_file=o.npy {BAD}",
        1,
        "a.tsv: no column 'body'",
    ),
    ("embed --model=none --input_file=a.tsv --output_file=o.npy", 1, "none: no such"),
    (
        "embed --model=m --input_file=a.tsv --output_file=o.parquet",
        2,
        "pip install albert_tf[parquet]",
    ),
    ("predict --model=m --input_file=a.pq --output_file=o.tsv", 2, "needs pyarrow"),
    ("export --model=m --output_dir=o --format=onnx", 2, "onnx needs onnx; pip"),
    ("export --model=none --output_dir=o", 1, "none: no such file or folder"),
    (
        f"export --model=m --output_dir=o --format=litert --eval_file=a.tsv {BAD}",
        1,
        "a.tsv: no column 'body'",
    ),
    ("export --model=m --output_dir=o --spm_model_file=none", 1, "none: "),
    (
        "convert_checkpoint --input=none --output=o --format=tf1",
        1,
        "none: no such file or folder",
    ),
    (
        "convert_checkpoint --input=m --output=m --format=tf1",
        2,
        "m: exists already",
    ),
    (
        "convert_checkpoint --input=m --output=o --format=tf1 --head=masked_lm",
        1,
        "m: holds no mlm_head",
    ),
    ("fill_mask --model=none --text=[MASK]", 1, "none: no such file or folder"),
    ("fill_mask --model=m --text=[MASK]", 2, "m: has no trained mlm_head"),
]


def test_mistakes(tmp_path, run_python):
    (tmp_path / "a.tsv").write_text("text\tlabel\na good film\t1\na bad one\t0\n")
    (tmp_path / "r.tfrecord").write_bytes(b"")
    (tmp_path / "a.pq").write_bytes(b"PAR1")
    tokenizer = load_tokenizer(SPIECE)
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    model.labels = ["0", "1"]
    save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    commands = json.dumps([command for command, *_ in MISTAKES])
    done = run_python("-c", CODE, commands, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for (command, code, message), result in zip(MISTAKES, found, strict=True):
        last = result[1].strip().split("\n")[-1]
        assert (result[0], result[2]) == (code, []), (command, result)
        assert message in last, (command, last)
