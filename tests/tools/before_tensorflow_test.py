"""What is wrong without TensorFlow is said before TensorFlow is imported."""

import importlib.util
import json
import shutil

from tests.reports.runs import lines, write_run
from tests.tiny import SPIECE, TEXT

# All commands in one process: exit code, last line and what is imported after each.
CODE = """
import importlib.util, json, sys
from tests.commands import run_command

# As if these extras were not installed.
sys.modules["pyarrow"] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "onnx" else find(name, *a)
results = []
for arguments in map(str.split, json.loads(sys.argv[1])):
    done = run_command(*arguments)
    imported = sorted({"tensorflow", "keras"} & set(sys.modules))
    results.append([done.code, done.error, imported])
print(json.dumps(results))
"""
CREATE = (
    f"create_pretraining_data --input_file={TEXT} --output_file=out/t "
    f"--spm_model_file={SPIECE} --num_processes=1"
)
FINETUNE = "finetune --output_dir=out --init_checkpoint=m --train_file=a.tsv"
PRETRAIN = (
    "pretrain --preset=albert_base_v2 --output_dir=out --input_file=r.tfrecord "
    "--spm_model_file=m/spiece.model"
)
PREDICT = "predict --output_file=out.tsv --model="
TABLE = "--input_file=a.tsv"
BAD = "--text_column=body"
FROM_CONFIG = "received 'electra'; --pair_loss_weight is from --config=c.py"
NO_FILE = "none: no such file or folder"
NO_COLUMN = "a.tsv: no column 'body'"
NO_RUNNER = "--runner: Nonsense cannot be used"
if importlib.util.find_spec("apache_beam") is None:
    NO_RUNNER = "--runner: needs Apache Beam: pip install albert_tf[beam]"
# Command -> flags, exit code, message.
MISTAKES = {
    CREATE: [
        ("--input_file=none.txt", 1, "none.txt: no such file"),
        ("--input_file=tfds:a --tfds_data_dir=.", 1, "a: not prepared in ."),
        ("--input_file=binary.txt", 1, "binary.txt: line 1: not UTF-8"),
        (f"--spm_model_file={TEXT}", 1, "input.txt: none of its 298 tokens is [PAD]"),
        ("--spm_model_file= --vocab_file=v", 2, "--vocab_file=v is not used"),
        ("--do_permutation", 2, "--do_permutation: not supported"),
        ("--input_file_mode=gz", 2, "--input_file_mode must be r, received 'gz'"),
        ("--masked_lm_prob=1.5", 2, "masked_lm_prob must be in (0, 1), received 1.5"),
        ("--max_predictions_per_seq=513", 2, "at most --max_seq_length=512, rec"),
        ("--random_next_sentence --pair_policy=none", 2, "not with --pair_policy=none"),
        ("--beam_option=--x=1", 2, "beam_option requires --runner"),
        ("--input_file=empty.txt", 1, "contains no training example"),
    ],
    "create_pretraining_data": [("", 2, "--input_file: required")],
    FINETUNE: [
        ("--num_train_steps=0", 2, "--num_train_steps must be positive"),
        ("--num_train_epochs=1 --num_train_steps=1", 2, "cannot be combined with num"),
        (BAD, 1, NO_COLUMN),
        ("--dev_file=none.tsv", 1, "none.tsv: "),
        ("--init_checkpoint=none", 1, NO_FILE),
        ("--output_dir=m", 2, "--output_dir: is --init_checkpoint, too"),
        ("--output_dir=served", 2, "served exists already"),
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
        ("--config=c.py --objective=electra", 2, FROM_CONFIG),
        ("--output_dir=a", 2, "--output_dir=a: holds another run, with --"),
        ("--num_train_steps=5", 2, "3125; this is the default of --num_warmup_steps"),
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
        ("--input_file=row.csv", 1, "row.csv: line 3: expected 1 columns, received 2"),
        ("--input_file=none.csv", 1, "none.csv: "),
        ("--input_file=a.pq", 2, "needs pyarrow"),
        (f"{TABLE} --task=foo", 2, "--task must be one of cola, "),
        (f"{TABLE} --task=squad1", 2, "needs a model with the"),
        (f"{TABLE} --task=mnli", 1, "but task mnli has"),
        (f"{TABLE} --max_seq_length=99", 2, "embeddings=24"),
        (f"{TABLE} --output_file=x.json", 2, "texts are written as .tsv, .csv, .jsonl"),
        (f"{TABLE} --output_file=a.tsv", 2, "exists already; give --overwrite"),
        (f"{TABLE} --output_file=no/x.tsv", 2, "no/x.tsv: there is no folder no"),
        ("--task=sst2 --data_dir=glue --on_bad_input=skip", 2, "--input_file with a"),
        (f"{TABLE} --runner=Nonsense", 2, NO_RUNNER),
        (f"{TABLE} --model=served", 1, "served: an exported SavedModel; give"),
        ("--task=sst2 --data_dir=glue", 1, "glue"),
    ],
    f"{PREDICT}mlm {TABLE}": [("", 2, "mlm: has no trained classifier")],
    f"{PREDICT}qa {TABLE}": [("", 2, "answers to questions are written as")],
    f"{PREDICT}nli --task=mnli": [
        ("--data_dir=glue", 2, "expected one of test_matched, test_mismatched, rec"),
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
        ("--warmup_batch_sizes=1,x", 2, "sizes: expected positive numbers, at most"),
        ("--warmup_batch_sizes=1,10001", 2, "at most 10000 (with a larger request"),
        ("--quantization=float16", 2, "--quantization: only with --format=litert"),
        ("--eval_file=dev.tsv", 2, "--eval_file: only with --format=litert, onnx"),
        ("--text_column=a", 2, "--eval_file: max_accuracy_drop and flags"),
        ("--format=onnx --max_accuracy_drop=1", 2, "--eval_file: max_accuracy_"),
        ("--format=litert --max_accuracy_drop=nan", 2, "a number, received nan"),
        ("--format=litert --version=1", 2, "--version: only with --format=saved_mo"),
        ("--format=openvino --quantization=dynamic_int8", 2, "one of none, bfloat16"),
    ],
    "convert_checkpoint --input=m --format=tf1": [
        ("--output=o --input=none", 1, NO_FILE),
        ("--output=m", 2, "m: exists already"),
        ("--output=o --head=masked_lm", 1, "m: holds no mlm_head"),
    ],
    "report": [
        ("", 2, "RUN: required"),
        ("none", 1, "none: must be the folder of a run"),
        ("a a", 2, "a: must be given once"),
        ("a --cost_per_hour=nan", 2, "--cost_per_hour=nan: must be a finite"),
        ("a --prompts_file=x", 2, "--prompts_file=x: only used with --samples"),
        ("a --samples --prompts_file=x", 1, "x: cannot be read"),
        ("f --samples", 2, "--samples: needs a pretraining run, received f"),
        ("f --output_file=no/x.html", 2, "there is no folder no"),
    ],
    "benchmark": [
        ("--memory_megabytes=2,x", 2, "--memory_megabytes: expected positive"),
        ("--topic=dta", 2, "--topic must be one of data, convert, finetune, st"),
    ],
    "glue_submission --prediction_dir=served --output_file=glue.zip": [
        ("", 1, "no predictions of cola,sst2,"),
        ("--predictions=wnli", 2, "expected TASK=PATH"),
    ],
    "inspect_model m": [
        ("none", 1, NO_FILE),
        ("--output_dir=m", 2, "m: exists already"),
        ("--input_file=none.txt", 1, "none.txt: cannot be read"),
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
    (tmp_path / "served/assets.extra").mkdir(parents=True)
    (tmp_path / "glue").mkdir()
    (tmp_path / "served/saved_model.pb").touch()
    (tmp_path / "a.tsv").write_text("text\tlabel\na good film\t1\na bad one\t0\n")
    (tmp_path / "r.tfrecord").write_bytes(b"")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "row.csv").write_text("text\na good film\nbad, worse\n")
    config = "def get_config():\n    return {'pair_loss_weight': 0.3, 'ngram': 1}\n"
    (tmp_path / "c.py").write_text(config)
    (tmp_path / "a.pq").write_bytes(b"PAR1")
    (tmp_path / "binary.txt").write_bytes(b"ab\xffcd\n")
    write_run(tmp_path / "a")
    write_run(tmp_path / "f", lines(4), kind="finetune")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    mistakes = [
        (f"{command} {flags}", code, message)
        for command, cases in MISTAKES.items()
        for flags, code, message in cases
    ]
    commands = json.dumps([command for command, *_ in mistakes])
    done = run_python("-c", CODE, commands, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    wrong = [
        (command, result)
        for (command, code, message), result in zip(mistakes, found, strict=True)
        if [result[0], result[2]] != [code, []] or message not in result[1]
    ]
    assert not wrong
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
