"""Makes a whole run on a GPU: pretraining, killed once and continued, then two tasks.

Each part is a command that a user would give, with `--backend=jax`, in a process of its
own. The commands need TensorFlow, which reads the data and writes the checkpoints, and
the same command continues a study that was stopped. The utilisation is defined in
`benchmarks.gpu`, with the mean length of the rows of a phase.
"""

import contextlib
import dataclasses
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import MODEL
from albert_tf.storage import files
from albert_tf.training.metrics_file import METRICS_FILE, read_metrics
from benchmarks import gpu_page
from benchmarks.objectives_jobs import TOKENIZER, done_once
from benchmarks.objectives_report import to_table
from benchmarks.report import Report, Row

_PYTHON = [sys.executable]
_TOOLS = pathlib.Path(__file__).resolve().parents[1] / "tools"
_MOST_POINTS = 12
_BYTES = 4  # of a token, in English
_HELD_OUT = 0.02
_NOTES = (
    "* tokens/s: median of the log lines, without padding. Of the peak: model FLOPs, "
    "as in docs/benchmarks/gpu.md, over the peak of the matrix units in bfloat16.",
    "* The models have seen far too little text for the published scores.",
)


@dataclasses.dataclass(frozen=True)
class Scale:
    """The size of a run.

    Attributes:
        max_bytes: int. Bytes of text. A shorter text is read several times.
        vocab_size: int. Tokens of a tokenizer that is trained on the text.
        tokenizer_bytes: int. Bytes of text that such a tokenizer needs.
        sizes: dict. Fields of `AlbertConfig` that differ from base.
        phases: tuple. Length, share of the steps and rows of each phase, in order.
        per_minute: int. Steps of a minute of pretraining.
        save_steps: int. Steps between checkpoints; the run is killed after the second.
        log_steps: int. Steps between lines of metrics.
        finetune: dict. Steps and rows by task.
        precision: str. Precision of both trainings.
    """

    max_bytes: int
    vocab_size: int
    tokenizer_bytes: int
    sizes: dict[str, int]
    phases: tuple[tuple[int, float, int], ...]
    per_minute: int
    save_steps: int
    log_steps: int
    finetune: dict[str, tuple[int, int]]
    precision: str


SCALES = {
    "full": Scale(
        max_bytes=200_000_000,
        vocab_size=30_000,
        # 6 MB of docstrings have words for 18,852 tokens.
        tokenizer_bytes=20_000_000,
        sizes={},
        phases=((128, 0.9, 256), (512, 0.1, 64)),
        # Of 18 steps a second on an H100, some are lost to starts, compilations,
        # evaluations and checkpoints.
        per_minute=800,
        save_steps=500,
        log_steps=100,
        finetune={"sst2": (1500, 32), "cola": (600, 32)},
        precision="bfloat16",
    ),
    "small": Scale(
        max_bytes=100_000,
        vocab_size=500,
        tokenizer_bytes=20_000,
        sizes={
            **{"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1},
            **{"num_attention_heads": 2, "intermediate_size": 32},
            "max_position_embeddings": 64,
        },
        phases=((32, 0.75, 8), (64, 0.25, 4)),
        per_minute=2,
        save_steps=4,
        log_steps=2,
        finetune={"sst2": (4, 8), "cola": (4, 8)},
        precision="float32",
    ),
}


@dataclasses.dataclass(frozen=True)
class Study:
    """A whole run; the same values make the same one.

    Attributes:
        folder: str. Folder of all that it writes.
        input_file: str. Text, as for `create_pretraining_data`.
        tokenizer: str. SentencePiece model; if empty, one is trained on the text.
        tasks: dict. Folder of the files of "sst2" and "cola".
        minutes: float. Time of pretraining on an H100, from which the number of steps
            follows.
        scale: `Scale`.
    """

    folder: str
    input_file: str
    tokenizer: str
    tasks: dict[str, str]
    minutes: float
    scale: Scale

    def join(self, *names: str) -> str:
        """Returns a path in the folder."""
        return files.join(self.folder, *names)

    @property
    def phases(self) -> list[tuple[int, int, int]]:
        """Length, steps and rows of each phase."""
        steps = max(20, round(self.minutes * self.scale.per_minute))
        return [(n, round(steps * share), rows) for n, share, rows in self.scale.phases]

    @property
    def made_of(self) -> str:
        """What tells the folder of this study from others."""
        phases = ",".join(":".join(map(str, phase)) for phase in self.phases)
        return f"phases {phases} of {self.input_file}"

    @property
    def config(self) -> AlbertConfig:
        """The config of the model."""
        return AlbertConfig.from_json(self.join("config.json"))


def run(study: Study) -> Report:
    """Makes the missing parts of a run, and reports on all of it.

    Raises:
        UsageError: If there is no GPU, except for the small scale, or a folder, a
            tokenizer or a text cannot be used.
        DataError: If one of the commands fails.
    """
    require(study.minutes > 0, "--minutes must be positive", study.minutes)
    device = _device()
    if device == "cpu" and study.scale is not SCALES["small"]:
        raise UsageError(
            "benchmark gpu_run: JAX sees no GPU here; --scale=small shows with a tiny "
            "model that everything runs"
        )
    size = _prepare(study)
    killed = _pretrain(study)
    scores = {task: _finetune(study, task) for task in study.scale.finetune}
    lines = read_metrics(study.join("pretrain", METRICS_FILE))
    return _report(study, device, lines, size, killed, scores)


def _prepare(study: Study) -> int:
    """Writes text, tokenizer, config and records; returns the bytes of text."""
    from albert_tf.text.load import load_tokenizer
    from benchmarks.data_speed import train_spm, write_lines

    done, made = study.join("prepared.json"), study.made_of
    if files.exists(done):
        found = files.read_json(done)
        of = found.get("of", "an earlier version")
        need = f"--work_dir={study.folder}: must be a folder of the same study ({of})"
        require(of == made, need, made)
        return found["bytes"]
    with _naming("work_dir"):
        files.make_folder(study.folder)
    text, model = study.join("text.txt"), study.join(TOKENIZER)
    if study.tokenizer:
        with _naming("spm_model_file"):
            load_tokenizer(study.tokenizer)
            files.write_bytes(model, files.read_bytes(study.tokenizer))
    size = write_lines(study.input_file, text, study.scale.max_bytes)
    _check_text(study, text, size)
    if not study.tokenizer:
        files.remove(model)  # left by a study that was killed here
        train_spm(text, study.folder, study.scale.vocab_size)
    sizes = {**study.scale.sizes, "vocab_size": load_tokenizer(model).vocab_size}
    config = AlbertConfig.from_preset("albert_base_v2", **sizes)
    config.to_json(study.join("config.json"))
    for length, *_ in study.phases:
        command = _command(
            "create_pretraining_data",
            input_file=text,
            input_format="lines",
            output_file=study.join("data", str(length), "docs"),
            spm_model_file=model,
            max_seq_length=length,
            eval_fraction=_HELD_OUT,
            overwrite=True,
        )
        _finish(command)
    return done_once(done, {"bytes": size, "of": made})["bytes"]


@contextlib.contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Lets errors inside begin with a flag."""
    try:
        yield
    except (UsageError, DataError) as error:
        raise type(error)(f"--{flag}: {error}") from None


def _check_text(study: Study, text: str, size: int) -> None:
    """Raises `UsageError` if a text is too short for the study."""
    from albert_tf.data.corpus.corpus import Corpus
    from albert_tf.data.prepare.blocks import RecordConfig

    length, _, rows = study.phases[-1]
    least, given = rows * length * _BYTES, study.input_file
    need = f"have text for {rows} rows of {length} tokens, {least:,} bytes"
    if not study.tokenizer and study.scale.tokenizer_bytes > least:
        least = study.scale.tokenizer_bytes
        need = f"have {least:,} bytes of text, or --spm_model_file be given"
    require(size >= least, f"--input_file must {need}", f"{given}: {size:,} bytes")
    # A document with a single sentence makes no example.
    split = RecordConfig(eval_fraction=_HELD_OUT).split
    documents = Corpus(text, "lines").documents()
    long = [split(one) for one in documents if len(one.texts) > 1]
    need = "--input_file must have so many documents of several sentences that one of "
    need += f"them is among the {_HELD_OUT:.0%} that are held out"
    require("eval" in long, need, f"{given}: {len(long):,} documents")


def _pretrain(study: Study) -> dict[str, Any]:
    """Pretrains; returns where the run was killed, and the seconds of both parts."""
    done, folder = study.join("pretrained.json"), study.join("pretrain")
    if files.exists(done):
        return files.read_json(done)
    scale, phases = study.scale, study.phases
    length, last, rows = phases[-1]
    steps = sum(count for _, count, _ in phases)
    command = _command(
        "pretrain",
        backend="jax",
        precision=scale.precision,
        input_file=study.join("data", "{length}", "docs"),
        eval_file=study.join("data", str(length), "docs-eval"),
        spm_model_file=study.join(TOKENIZER),
        albert_config_file=study.join("config.json"),
        output_dir=folder,
        sequence_length_schedule=",".join(":".join(map(str, p)) for p in phases),
        max_seq_length=length,
        train_batch_size=rows,
        num_train_steps=steps,
        num_warmup_steps=steps // 16,
        optimizer="adamw",
        learning_rate=2e-4,
        save_checkpoints_steps=scale.save_steps,
        log_steps=scale.log_steps,
        eval_steps=0,
        eval_batch_size=rows,
        max_eval_steps=10,
        sample_texts="",
        # Not the first ones of a phase, whose program is compiled.
        profile_steps=f"{steps - min(last // 2, 10) + 1},{steps}",
    )

    def last_step() -> int:
        lines = read_metrics(files.join(folder, METRICS_FILE))
        return max((line["step"] for line in lines), default=0)

    # A study that was stopped later is killed once, too.
    start, step, first = time.monotonic(), 0, last_step()
    kill = first + min(2 * scale.save_steps, (steps - first) // 2)
    process = subprocess.Popen(
        [*_PYTHON, *command], stdout=sys.stderr, env=_environment()
    )
    while process.poll() is None and step < kill:
        time.sleep(0.02)
        step = last_step()
    process.kill()
    killed, before = process.wait() < 0, time.monotonic() - start
    _finish(command)
    after = time.monotonic() - start - before
    found = {"step": step if killed else None, "before": before, "after": after}
    return done_once(done, found)


def _finetune(study: Study, task: str) -> dict[str, Any]:
    """Fine-tunes on a task; returns the content of `metrics.json`, and the speed."""
    done, folder = study.join(f"{task}.json"), study.join(task)
    if files.exists(done):
        return files.read_json(done)
    start, (steps, rows) = time.monotonic(), study.scale.finetune[task]
    command = _command(
        "finetune",
        backend="jax",
        precision=study.scale.precision,
        task=task,
        data_dir=study.tasks[task],
        init_checkpoint=study.join("pretrain", MODEL),
        output_dir=folder,
        max_seq_length=64,
        train_batch_size=rows,
        num_train_steps=steps,
        num_warmup_steps=steps // 10,
        learning_rate=2e-5,
        eval_steps=0,
        keep="last",
    )
    _finish(command)
    lines = read_metrics(files.join(folder, METRICS_FILE))
    speed = _speed(line for line in lines if line["split"] == "train")
    found = files.read_json(files.join(folder, "metrics.json"))
    seconds = time.monotonic() - start
    return done_once(done, {**found, "seconds": seconds, "tokens_per_second": speed})


def _report(
    study: Study,
    device: str,
    lines: Sequence[dict[str, Any]],
    size: int,
    killed: dict[str, Any],
    scores: dict[str, dict[str, Any]],
) -> Report:
    training = [line for line in lines if line["split"] == "train"]
    peak, rows, table, first = gpu_page.peak_of(device), [], {}, 0
    for length, steps, batch in study.phases:
        last = first + steps
        phase = [line for line in training if first < line["step"] <= last]
        speed, tokens = _speed(phase), sum(line["tokens"] for line in phase)
        flops = 3 * study.config.flops_per_token(round(tokens / (steps * batch)))
        used = speed * flops / peak / 1e12 if peak else None
        title = f"length {length}"
        rows.append(Row(f"{title}: tokens/s", speed, ""))
        rows += [Row(f"{title}: share of the peak", used, "")] if used else []
        table[f"{title}, {batch} rows"] = {
            "steps": f"{steps:,}",
            "tokens": f"{tokens:,.0f}",
            "tokens/s": f"{speed:,.0f}",
            "of the peak": f"{used:.1%}" if used else "-",
            "last loss": f"{phase[-1]['loss']:.4f}",
        }
        first = last
    every = -(-len(training) // _MOST_POINTS)
    points = training[::-1][::every][::-1]
    curve = {f"{p['step']:,}": {"loss": f"{p['loss']:.4f}"} for p in points}
    tasks = {}
    for task, found in scores.items():
        name = found["metric"]
        rows.append(Row(f"{task}: {name}", found[name], ""))
        tasks[task] = {
            "steps": f"{found['num_train_steps']:,}",
            name: f"{found[name]:.4f}",
            "tokens/s": f"{found['tokens_per_second']:,.0f}",
            "seconds": f"{found['seconds']:.0f}",
        }
    step = killed["step"]
    ended = f"Pretraining was killed after step {step:,}" if step else "Not killed"
    text = [
        f"Device: {device}; peak {peak or 'unknown'} TFLOP/s in bfloat16. "
        f"{size / 1e6:.1f} MB of text. {ended}, {killed['before']:.0f} s from its "
        f"start; the same command took {killed['after']:.0f} s more.",
        *("", "## Pretraining", "", *to_table(table)),
        *("", "## Loss by step", "", *to_table(curve)),
    ]
    for task, cells in tasks.items():
        text += ["", f"## {task}", "", *to_table({task: cells})]
    series = {"device": device, "lines": list(lines), "killed": killed, "tasks": scores}
    title = "A whole run on a GPU"
    return Report(title, rows, series, notes=_NOTES, text="\n".join(text))


def _speed(lines: Iterable[dict[str, Any]]) -> float:
    return statistics.median(line["tokens_per_second"] for line in lines)


def _command(verb: str, **flags: Any) -> list[str]:
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    return [str(_TOOLS / f"{verb}.py"), *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "KERAS_BACKEND": "jax"}


def _finish(command: list[str]) -> None:
    """Runs a command to its end."""
    verb = pathlib.Path(command[0]).stem
    shown = f"\n$ albert-tf {verb} {shlex.join(command[1:])}"
    print(shown, file=sys.stderr, flush=True)
    done = subprocess.run([*_PYTHON, *command], stdout=sys.stderr, env=_environment())
    code = done.returncode
    need = f"benchmark gpu_run: {verb} ended with exit code {code}; see its last line"
    require(not code, need, error=DataError)


def _device() -> str:
    """Returns the kind of JAX's device, which this process must not occupy."""
    code = "import jax; print(jax.devices()[0].device_kind)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    require(not done.returncode, f"benchmark gpu_run: {last}", error=DataError)
    return done.stdout.strip()
