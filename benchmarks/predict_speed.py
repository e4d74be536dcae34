"""Measures `predict` and `embed` side by side with the pipelines of transformers.

Both have the same weights and answer the same texts of mixed lengths in turns: all of
them at once, with the model loaded, from texts to answers. Our contestant computes the
same as the commands, including the file that they read.
"""

import csv
import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.converters.load import save_pretrained
from albert_tf.environment import num_cores
from albert_tf.inference.files import EmbedWork, PredictWork
from albert_tf.inference.forward import use_one_thread_per_call
from albert_tf.inference.settings import BulkSettings
from albert_tf.jobs.run import Job, Work
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.tasks.text_tables import TextFileSettings
from albert_tf.text.load import load_tokenizer
from benchmarks import data_speed, peer
from benchmarks.report import Report, Row
from benchmarks.serving_speed import mixed_texts
from benchmarks.turns import seconds_in_turns

_SEED = 12345
_BATCH_SIZE = 32
_WARM_UP = 64
_AIM = "at least 3"
# From a number of texts, the first ones, to their answers `[N, C]`.
Contestant = Callable[[int], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parameters of the measurement.

    Attributes:
        input_file: str. Corpus of the texts.
        spm_model_file: str. Tokenizer; default: one trained on the corpus.
        max_bytes: int. Bytes of the corpus that are read.
        preset: str. Size of the model; its weights are random.
        max_seq_length: int. Longer texts are cut.
        num_texts: int. Number of texts.
        rounds: int. Number of passes over all texts; medians are compared.
    """

    input_file: str = "docstrings:"
    spm_model_file: str = ""
    max_bytes: int = 20_000_000
    preset: str = "albert_base_v2"
    max_seq_length: int = 512
    num_texts: int = 10_000
    rounds: int = 3


def run(settings: Settings) -> Report:
    """Returns texts per second, and how many times faster ours is.

    Raises:
        UsageError: If transformers or torch is not installed.
        DataError: If the corpus has too few documents.
    """
    peer.require("predict")
    use_one_thread_per_call(num_cores())
    with tempfile.TemporaryDirectory() as folder:
        corpus = os.path.join(folder, "text.txt")
        data_speed.write_lines(settings.input_file, corpus, settings.max_bytes)
        spm_model = settings.spm_model_file or data_speed.train_spm(corpus, folder)
        texts = mixed_texts(corpus, settings.num_texts)
        ours, theirs = _save(settings, spm_model, folder)
        rows, series = [], {}
        for title, load in (("predict", _classifiers), ("embed", _encoders)):
            pair = load(ours, theirs, texts, settings, folder)
            found, seconds = _measure(title, pair, len(texts), settings.rounds)
            rows += found
            series |= seconds
    return Report("Benchmark of predict and embed", rows, series)


def _save(settings: Settings, spm_model: str, folder: str) -> tuple[str, str]:
    """Returns the folders of one model in our format and in transformers'."""
    tokenizer = load_tokenizer(spm_model)
    model = AlbertTextClassifier(AlbertConfig.from_preset(settings.preset), seed=_SEED)
    model.max_seq_length = settings.max_seq_length
    ours, theirs = (os.path.join(folder, name) for name in ("ours", "theirs"))
    save_pretrained(model, ours, tokenizer=tokenizer)
    save_pretrained(model, theirs, format="huggingface", tokenizer=tokenizer)
    return ours, theirs


def _classifiers(ours, theirs, texts, settings, folder) -> dict[str, Contestant]:
    bulk = BulkSettings()
    work = PredictWork(model=ours, output_file="x.jsonl", batch_size=_BATCH_SIZE)
    pipe = _pipeline("text-classification", theirs, settings.max_seq_length)

    def peers(count: int) -> np.ndarray:
        found = pipe(texts[:count], batch_size=_BATCH_SIZE, top_k=None)
        by_label = [{one["label"]: one["score"] for one in row} for row in found]
        return np.array([[row[name] for name in sorted(row)] for row in by_label])

    def probabilities(content: bytes) -> np.ndarray:
        rows = [json.loads(line)["probabilities"] for line in content.splitlines()]
        return np.array([[row[name] for name in sorted(row)] for row in rows])

    return _pair(work, probabilities, peers, texts, bulk, folder)


def _encoders(ours, theirs, texts, settings, folder) -> dict[str, Contestant]:
    bulk = BulkSettings()
    work = EmbedWork(
        model=ours,
        output_file="x.npy",
        pooling="cls",
        max_seq_length=settings.max_seq_length,
        batch_size=_BATCH_SIZE,
    )
    pipe = _pipeline("feature-extraction", theirs, settings.max_seq_length)
    width = AlbertConfig.from_preset(settings.preset).hidden_size

    def peers(count: int) -> np.ndarray:
        found = pipe(texts[:count], batch_size=_BATCH_SIZE, return_tensors=True)
        return np.stack([one[0, 0].numpy() for one in found])

    def vectors(content: bytes) -> np.ndarray:
        return np.frombuffer(content, "<f4").reshape(-1, width)

    return _pair(work, vectors, peers, texts, bulk, folder)


def _pipeline(kind: str, path: str, max_seq_length: int):
    """Returns a pipeline of transformers."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    cut = {"truncation": True, "max_length": max_seq_length}
    if kind == "feature-extraction":
        cut = {"tokenize_kwargs": cut}
    return transformers.pipeline(
        kind, model=path, tokenizer=tokenizer, device="cpu", **cut
    )


def _pair(
    work: Work,
    read: Callable[[bytes], np.ndarray],
    peers: Contestant,
    texts: list[str],
    bulk: BulkSettings,
    folder: str,
) -> dict[str, Contestant]:
    compute = work.open(num_cores())

    def ours(count: int) -> np.ndarray:
        path = os.path.join(folder, f"{count}.csv")
        if not os.path.exists(path):
            _write_table(path, texts[:count])
        first, found = 0, []
        for number, rows in enumerate(
            TextFileSettings().stream(path).portions(bulk.rows_per_part)
        ):
            part = compute(Job(number, first, rows, ""), lambda rows: None)
            found.append(read(part.content))
            first += len(rows)
        return np.concatenate(found)

    return {"albert_tf": ours, "transformers, batches of 32": peers}


def _write_table(path: str, texts: list[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text",), *((text,) for text in texts)])


def _measure(
    title: str, pair: dict[str, Contestant], count: int, rounds: int
) -> tuple[list[Row], dict[str, list[float]]]:
    """Makes both answer all texts in turns."""
    few = min(count, _WARM_UP)
    answers = [answer(few) for answer in pair.values()]
    difference = float(np.abs(answers[0] - answers[1]).max())
    calls = {name: counted(answer, few, count) for name, answer in pair.items()}
    seconds = seconds_in_turns(calls, rounds, title)
    rates = {name: count / float(np.median(all_)) for name, all_ in seconds.items()}
    cores = num_cores()
    rows = [
        Row(
            f"{title}: {name}",
            rate,
            f"texts/s; {rate / cores:.3g} per core",
            details={"largest difference": float(f"{difference:.2g}")},
        )
        for name, rate in rates.items()
    ]
    ours, theirs = rates.values()
    rows.append(Row(f"{title}: speed-up", ours / theirs, "", _AIM))
    series = {
        f"{title}: {name}: seconds": [round(one, 3) for one in all_]
        for name, all_ in seconds.items()
    }
    return rows, series


def counted(answer: Contestant, few: int, count: int) -> Callable[[], np.ndarray]:
    """Returns a function that answers a few texts twice, and then all of them."""
    counts: Iterator[int] = itertools.chain([few, few], itertools.repeat(count))
    return lambda: answer(next(counts))
