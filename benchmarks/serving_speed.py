"""Measures a served text classifier next to other programs that run it.

All have the same weights and answer the same requests in turns: rows of tokens, and
texts of realistic lengths, including their tokenization. Our contestant is the
SavedModel that `export` writes, loaded without Keras.

Legend: `B` texts of a request.
"""

import dataclasses
import itertools
import os
import tempfile
from collections.abc import Callable, Mapping

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.data.corpus.corpus import open_corpus
from albert_tf.errors import DataError
from albert_tf.export import cpu
from albert_tf.export.saved_model import export_saved_model
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.text.load import load_tokenizer
from benchmarks import data_speed, peer
from benchmarks.report import Report, Row
from benchmarks.serving_peers import Peers, Server
from benchmarks.turns import seconds_in_turns

_SEED = 12345
_AIMS = {"float32": "at least 1.1", "bfloat16": "at least 1.3"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parameters of the measurement.

    Attributes:
        input_file: str. Corpus of the texts.
        spm_model_file: str. Tokenizer; default: one trained on the corpus.
        max_bytes: int. Bytes of the corpus that are read.
        preset: str. Size of the model; its weights are random.
        batch_sizes: tuple of int. `B`.
        num_tokens: int. Tokens of the rows.
        max_seq_length: int. Longer texts are cut.
        num_texts: int. Number of texts.
        steps: int. Requests of rows to every contestant.
        imitate: bool. Whether bfloat16 is also measured on a CPU without it.
    """

    input_file: str = "docstrings:"
    spm_model_file: str = ""
    max_bytes: int = 5_000_000
    preset: str = "albert_base_v2"
    batch_sizes: tuple[int, ...] = (1, 8)
    num_tokens: int = 128
    max_seq_length: int = 512
    num_texts: int = 64
    steps: int = 12
    imitate: bool = False


def run(settings: Settings) -> Report:
    """Returns the times of requests, and texts per second.

    Raises:
        UsageError: If transformers or torch is not installed.
    """
    peer.require("serving")
    precisions, notes = ["float32"], []
    if settings.imitate or cpu.has_bfloat16():
        precisions.append("bfloat16")
    else:
        notes.append("This CPU has no bfloat16, so only float32 was measured.")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text.txt")
        data_speed.write_lines(settings.input_file, path, settings.max_bytes)
        spm_model = settings.spm_model_file or data_speed.train_spm(path, folder)
        texts = mixed_texts(path, settings.num_texts)
        servers, absent = _servers(settings, precisions, spm_model, folder)
        rows, series = _time_rows(settings, servers)
        for size in settings.batch_sizes:
            rows += _time_texts(servers, texts, size)
    notes += absent
    return Report("Benchmark of serving", rows, series, notes=tuple(notes))


def mixed_texts(path: str, count: int) -> list[str]:
    """Returns single sentences and whole documents of a corpus in turn.

    Args:
        path: str. The corpus, one sentence per line.
        count: int. Number of texts. They are spread over the corpus.
    """
    documents = list(open_corpus(path, "lines"))
    if len(documents) < count:
        raise DataError(
            f"input_file: {len(documents)} documents, received num_texts={count}"
        )
    places = np.linspace(0, len(documents) - 1, count).astype(int)
    return [
        " ".join(documents[place] if number % 2 else documents[place][:1])
        for number, place in enumerate(places)
    ]


def _servers(
    settings: Settings, precisions: list[str], spm_model: str, folder: str
) -> tuple[dict[str, Server], list[str]]:
    tokenizer = load_tokenizer(spm_model)
    config = AlbertConfig.from_preset(settings.preset)
    model = AlbertTextClassifier(config, seed=_SEED)
    ours = {}
    for precision in precisions:
        exported = export_saved_model(
            model,
            os.path.join(folder, precision),
            tokenizer=tokenizer,
            max_seq_length=settings.max_seq_length,
            warmup_batch_sizes=(),
            precision=precision,
        )
        ours[f"albert_tf, {precision}"] = _load(exported)
    peers = Peers(model, tokenizer, settings.max_seq_length, folder)
    theirs, absent = peers.servers(precisions)
    return {**ours, **theirs}, absent


def _load(path: str) -> Server:
    """Returns an exported model."""
    import tensorflow as tf

    loaded = tf.saved_model.load(path)
    tokens, default = (loaded.signatures[k] for k in ("tokens", "serving_default"))

    def forward(ids, mask, segments) -> np.ndarray:
        lengths = mask.sum(1, dtype=np.int32)
        arrays = {"token_ids": ids, "lengths": lengths, "segment_ids": segments}
        tensors = {name: tf.constant(x, tf.int32) for name, x in arrays.items()}
        return tokens(**tensors)["logits"].numpy()

    def answer(texts: list[str]) -> np.ndarray:
        # The signature does not keep the folder's variables alive.
        assert loaded is not None
        return default(text=tf.constant(texts))["logits"].numpy()

    return Server(forward, answer)


def _time_rows(
    settings: Settings, servers: Mapping[str, Server]
) -> tuple[list[Row], dict[str, list[float]]]:
    """Times requests of full rows of random tokens."""
    rng = np.random.default_rng(_SEED)
    vocab_size = AlbertConfig.from_preset(settings.preset).vocab_size
    rows, series = [], {}
    for size in settings.batch_sizes:
        shape = (size, settings.num_tokens)
        ids = rng.integers(5, vocab_size, shape, dtype=np.int32)
        batch = (ids, np.ones_like(ids), np.zeros_like(ids))
        title = f"{settings.num_tokens} tokens, batch {size}"
        calls = {
            name: lambda forward=server.forward: forward(*batch)  # noqa: B023
            for name, server in servers.items()
        }
        errors = _differences({name: call() for name, call in calls.items()})
        seconds = seconds_in_turns(calls, settings.steps, title)
        rows += [
            latency_row(f"{title}: {name}", found, errors[name])
            for name, found in seconds.items()
        ]
        rows += _ratios(title, {k: np.median(found) for k, found in seconds.items()})
        series |= {
            f"{title}: {name}: seconds": [round(one, 4) for one in found]
            for name, found in seconds.items()
        }
    return rows, series


def latency_row(name: str, seconds: list[float], error: float) -> Row:
    """Returns the median and high percentiles of the times of one contestant."""
    median, p90, p99 = 1e3 * np.percentile(seconds, [50, 90, 99])
    return Row(
        name,
        float(median),
        f"ms; 90%: {p90:.4g}, 99%: {p99:.4g}",
        details={
            "p90": round(float(p90), 2),
            "p99": round(float(p99), 2),
            "largest difference of a logit": float(f"{error:.2g}"),
        },
    )


def _differences(logits: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns the distances of the answers from the first contestant's answers."""
    first = next(iter(logits.values()))
    return {name: float(np.abs(one - first).max()) for name, one in logits.items()}


def _ratios(title: str, costs: Mapping[str, float]) -> list[Row]:
    """Returns the speedup over transformers for each precision of ours."""
    rows = []
    for precision, aim in _AIMS.items():
        ours, theirs = f"albert_tf, {precision}", f"transformers, {precision}"
        if ours in costs:
            ratio = float(costs[theirs] / costs[ours])
            rows.append(Row(f"{title}: speed-up, {precision}", ratio, "", aim))
    return rows


def _time_texts(
    servers: Mapping[str, Server], texts: list[str], size: int
) -> list[Row]:
    """Returns texts per second, in requests of some consecutive texts."""
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]
    calls = {name: _in_turn(server, batches) for name, server in servers.items()}
    title = f"texts of mixed lengths, batch {size}"
    # All batches twice: programs prepare for a length when they first encounter it.
    seconds = seconds_in_turns(calls, 2 * len(batches), title)
    totals = {name: sum(found[len(batches) :]) for name, found in seconds.items()}
    rows = [
        Row(f"{title}: {name}", len(texts) / total, "texts/s")
        for name, total in totals.items()
    ]
    return rows + _ratios(title, totals)


def _in_turn(server: Server, batches: list[list[str]]) -> Callable[[], np.ndarray]:
    """Returns a function that sends the next batch; it is called twice beforehand."""
    order = itertools.chain(batches[:1] * 2, itertools.cycle(batches))
    return lambda: server.texts(next(order))
