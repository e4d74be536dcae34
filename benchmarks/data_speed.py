"""Compares the data engine with the original's algorithm: speed, waiting, memory.

Every measurement runs in its own process, so that none inherits the memory, the threads
or the compiled graphs of another. The compared runs take turns, and medians are
compared, because the speed of a machine varies over time.
"""

import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Iterator

import tqdm

from albert_tf import features
from albert_tf.data.corpus.corpus import open_corpus
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.text.load import load_tokenizer
from benchmarks import measure
from benchmarks.measure import run_in_new_process
from benchmarks.report import Row

_VOCAB_SIZE = 8000
_MASKED = 77  # 15% of 512


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parameters of the measurements.

    Attributes:
        input_file: str. Text, as for `create_pretraining_data`.
        spm_model_file: str. SentencePiece model; if empty, one is trained on the text.
        max_bytes: int. Maximum number of bytes of text.
        rounds: int. Number of runs of each kind.
        dupe_factor: int. Number of passes over the text.
        memory_megabytes: tuple. Sizes of text whose peak memory is measured.
        seconds: float. Duration of measuring the masking and the training step.
        max_seq_length: int. S of the records.
    """

    input_file: str = "docstrings:"
    spm_model_file: str = ""
    max_bytes: int = 5_000_000
    rounds: int = 3
    dupe_factor: int = 2
    memory_megabytes: tuple[int, ...] = (20, 200)
    seconds: float = 20.0
    max_seq_length: int = 512


def run(settings: Settings) -> list[Row]:
    """Makes all measurements of the topic `data`."""
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        size = write_lines(settings.input_file, text, settings.max_bytes)
        model = settings.spm_model_file or train_spm(text, folder)
        rows = _speed(settings, text, size, model)
        rows += _input_pipeline(settings, text, model, folder)
        rows += _memory(settings, text, size, model, folder)
    return rows


def write_lines(input_file: str, path: str, max_bytes: int) -> int:
    """Writes the start of a corpus in the original's format; returns its bytes."""
    size = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for document in open_corpus(input_file):
            text = "\n".join(document) + "\n\n"
            size += len(text.encode())
            if size > max_bytes:
                break
            file.write(text)
    if not os.path.getsize(path):
        raise DataError(f"input_file: {input_file}: no document fits in {max_bytes}")
    return os.path.getsize(path)


def train_spm(text: str, folder: str, vocab_size: int = _VOCAB_SIZE) -> str:
    """Trains a tokenizer on a text and returns its file, in the folder."""
    from albert_tf.text.train import train_tokenizer

    path = os.path.join(folder, "spiece.model")
    lines = (line for document in open_corpus(text, "lines") for line in document)
    train_tokenizer(lines, path, vocab_size=vocab_size)
    return path


def _speed(settings: Settings, text: str, size: int, model: str) -> list[Row]:
    """Measures text to records, the original's algorithm and ours in turn."""
    arguments = (text, model, settings.max_seq_length, settings.dupe_factor)
    runs = {
        "the original's algorithm, 1 process": (measure_original, (*arguments, True)),
        "the same, its sets of characters made once": (
            measure_original,
            (*arguments, False),
        ),
        "ours, 1 process": (measure_ours, (*arguments, 1, False)),
        "ours, 2 processes": (measure_ours, (*arguments, 2, False)),
        "ours, static masks and the original's pairs, 1 process": (
            measure_ours,
            (*arguments, 1, True),
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in runs}
    order = [name for _ in range(settings.rounds) for name in runs]
    for name in tqdm.tqdm(order, desc=f"text to records ({size / 1e6:.1f} MB)"):
        function, values = runs[name]
        found[name].append(run_in_new_process(function, *values))
    medians = {name: statistics.median(values) for name, values in found.items()}
    baseline, _, one, two, static = medians.values()
    recorded = measure.ORIGINAL_TOKENS_PER_SECOND
    return [
        *(
            Row(
                f"text to records: {name}", medians[name], "tokens/s", "", {"all": each}
            )
            for name, each in found.items()
        ),
        Row("ours in 1 process, times that algorithm", one / baseline, "x"),
        Row("ours in 2 processes, times that algorithm", two / baseline, "x"),
        Row(
            "ours as the original's records, times that algorithm",
            static / baseline,
            "x",
        ),
        Row("the original's own code (recorded, idle)", recorded, "tokens/s"),
        Row("ours in 1 process, times that code", one / recorded, "x", ">= 15"),
        Row("ours in 2 processes, times that code", two / recorded, "x", ">= 25"),
    ]


def measure_original(
    text: str, model: str, length: int, dupe_factor: int, sets_for_each_piece: bool
) -> float:
    """Returns tokens per second of the original's algorithm."""
    from benchmarks.original_data import OriginalPipeline

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        pipeline = OriginalPipeline(
            model,
            length,
            dupe_factor=dupe_factor,
            sets_for_each_piece=sets_for_each_piece,
        )
        tokens = pipeline.run(text, os.path.join(folder, "out.tfrecord"))
        return tokens / (time.perf_counter() - start)


def _record_config(length: int, dupe_factor: int, as_original: bool) -> RecordConfig:
    return RecordConfig(
        pairs=PairConfig("original" if as_original else "clean", length),
        mask=MaskingConfig(
            max_predictions_per_seq=20 if as_original else _MASKED,
            rules="original" if as_original else "albert_tf",
        ),
        masking="static" if as_original else "dynamic",
        dupe_factor=dupe_factor,
    )


def measure_ours(
    text: str, model: str, length: int, dupe_factor: int, processes: int, static: bool
) -> float:
    """Returns tokens per second of this package, start of workers and card included."""
    config = _record_config(length, dupe_factor, static)
    tokenizer = load_tokenizer(model)
    return measure.measure_records(text, tokenizer, config, processes).tokens_per_second


def _input_pipeline(settings, text: str, model: str, folder: str) -> list[Row]:
    """Measures records to batches: masking on one core, and the waiting of a step."""
    from albert_tf.data.corpus.corpus import Corpus
    from albert_tf.data.prepare.create import create_pretraining_data

    length = settings.max_seq_length
    prefix = os.path.join(folder, "records/t")
    # Full sentences give rows of the whole length, whatever the documents.
    config = RecordConfig(pairs=PairConfig("none", length))
    card = create_pretraining_data(
        Corpus(text, "lines"),
        prefix,
        load_tokenizer(model),
        config,
        num_processes=1,
        progress=False,
    )
    rows = []
    names = ("masking in tf.data, one core", "share of a step that waits for its batch")
    with tqdm.tqdm(total=2, desc="records to batches") as bar:
        speed, details = run_in_new_process(
            measure_masking, prefix, model, length, settings.seconds
        )
        details["mean_length"] = round(card["examples"]["mean_length"], 1)
        rows.append(Row(names[0], speed, "tokens/s", ">= 2,000,000", details))
        bar.update()
        share, details = run_in_new_process(
            measure_wait, prefix, model, length, settings.seconds
        )
        rows.append(Row(names[1], 100 * share, "%", "< 1", details))
        bar.update()
    return rows


def measure_masking(
    prefix: str, model: str, length: int, seconds: float
) -> tuple[float, dict]:
    """Returns tokens per second of reading, masking and batching on one core.

    Next to it is the rate by CPU time, which other work on the machine hardly affects.
    """
    if hasattr(os, "sched_setaffinity"):  # before TensorFlow counts the cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    batches = _batches(prefix, model, length, batch_size=64)
    for _ in range(3):
        next(batches)
    tokens = count = 0
    start, start_cpu = time.perf_counter(), time.process_time()
    while not count or time.perf_counter() - start < seconds:
        tokens += int(next(batches)[features.PADDING_MASK].sum())
        count += 1
    passed, used = time.perf_counter() - start, time.process_time() - start_cpu
    details = {"batches": count, "tokens_per_cpu_second": round(tokens / used)}
    return tokens / passed, details


def _batches(prefix, model, length, batch_size) -> Iterator[dict]:
    from albert_tf.data.batches.pretraining import PretrainingData

    data = PretrainingData(
        prefix,
        tokenizer=load_tokenizer(model),
        max_seq_length=length,
        max_predictions_per_seq=_MASKED,
        seed=1,
    )
    return data.batches(batch_size).as_numpy_iterator()


def measure_wait(
    prefix: str, model: str, length: int, seconds: float
) -> tuple[float, dict]:
    """Returns the fraction of training time on this CPU spent waiting for batches.

    A small ALBERT (4 layers of 256) on rows of the records' full length, 8 a step.
    """
    import tensorflow as tf

    from albert_tf.config import AlbertConfig
    from albert_tf.models.masked_lm import AlbertPretrainer
    from albert_tf.objectives.pretraining import pretraining_loss
    from albert_tf.optimizers.create import create_optimizer

    tokenizer = load_tokenizer(model)
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=length,
    )
    net = AlbertPretrainer(config, seed=1)
    optimizer = create_optimizer("lamb", learning_rate=1e-3, num_train_steps=1000)
    variables = net.trainable_variables
    optimizer.build(variables)

    @tf.function
    def train(batch):
        with tf.GradientTape() as tape:
            loss = pretraining_loss(net(batch, training=True), batch)["loss"]
        # Rows of one segment have no label, so the pair head has no gradient.
        gradients = [
            tf.zeros(v.shape) if g is None else tf.convert_to_tensor(g)
            for g, v in zip(tape.gradient(loss, variables), variables, strict=True)
        ]
        optimizer.apply(gradients, variables)
        return loss

    batches = _batches(prefix, model, length, batch_size=8)
    for _ in range(2):
        train(next(batches)).numpy()
    waited = total = 0.0
    steps = 0
    while total < seconds or not steps:
        start = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - start
        train(batch).numpy()
        total += time.perf_counter() - start
        steps += 1
    return waited / total, {"steps": steps, "seconds_a_step": round(total / steps, 3)}


def _memory(settings, text: str, size: int, model: str, folder: str) -> list[Row]:
    """Measures peak resident memory for several sizes of text, by repeating it."""
    rows = []
    for megabytes in tqdm.tqdm(settings.memory_megabytes, desc="peak memory"):
        path = os.path.join(folder, f"{megabytes}.txt")
        content = files.read_bytes(text)
        with open(path, "wb") as file:
            for _ in range(max(1, round(megabytes * 1e6 / size))):
                file.write(content)
        peak = run_in_new_process(measure_memory, path, model, settings.max_seq_length)
        os.remove(path)
        name = f"peak resident memory, {megabytes} MB of text, 2 processes"
        rows.append(Row(name, peak, "MB", "< 1500"))
    if len(rows) > 1:
        values = [row.value for row in rows]
        spread = 100 * (max(values) / min(values) - 1)
        rows.append(Row("largest peak above the smallest", spread, "%", "<= 10"))
    return rows


def measure_memory(path: str, model: str, length: int) -> float:
    """Returns peak megabytes of a run with two processes, all processes together."""
    config = _record_config(length, 1, as_original=False)
    return measure.measure_records(
        path, load_tokenizer(model), config, 2
    ).peak_megabytes
