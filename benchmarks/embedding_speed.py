"""Measures vectors side by side with sentence-transformers: training and encoding.

Both have the same weights and read the same texts of mixed lengths, in turns. Training
and encoding have a process each, because encoding gives each core its own batch.

Legend: `U` pairs of a batch, `N` texts, `E` numbers of a vector.
"""

import concurrent.futures
import dataclasses
import importlib.metadata
import multiprocessing
import os
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import albert_tf
from albert_tf.data.batches.graph_ops import shuffled
from albert_tf.data.corpus.corpus import open_corpus
from albert_tf.environment import num_cores
from albert_tf.errors import DataError, require
from albert_tf.export import cpu
from albert_tf.export.runtimes import RUNTIMES, TokensGraph
from albert_tf.inference.forward import use_one_thread_per_call
from albert_tf.objectives.embedding import Contrastive
from albert_tf.tasks.batches import BatchMaker, BatchShape, make_training_dataset
from albert_tf.tasks.embedding import embedding_task
from albert_tf.tasks.embedding_files import TUPLES, TextTuples
from albert_tf.tasks.outputs import in_threads, sorted_batches
from albert_tf.text import inputs
from albert_tf.text.load import load_tokenizer
from albert_tf.training.tensorflow.step import TrainStep, distribute
from benchmarks import data_speed, peer
from benchmarks.predict_speed import Contestant, counted
from benchmarks.report import Report, Row
from benchmarks.serving_speed import mixed_texts
from benchmarks.turns import seconds_in_turns

_PEER = "sentence-transformers"
_OURS = "albert_tf"
_SEED = 12345
_RATE = 1e-5
_ROWS = 32
_WARM_UP = 64
# The largest relative difference of losses, and difference of vectors.
_SAME_LOSS = {"float32": 1e-4, "bfloat16": 0.05}
_SAME = 1e-4


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parameters of the measurement.

    Attributes:
        init_checkpoint: str. Folder of sentence-transformers; empty for a random model.
        input_file: str. Corpus of the texts.
        spm_model_file: str. Tokenizer of the random model; if empty, one is trained on
            the corpus.
        max_bytes: int. Bytes of the corpus that are read.
        preset: str. Size of the random model.
        max_seq_length: int. Longer texts are cut; the model's own maximum also counts.
        steps: int. Training steps of every contestant.
        precision: str. Of training, "bfloat16" or "float32".
        num_texts: int. `N`.
        rounds: int. Number of passes over all texts; medians are compared.
        batch_sizes: tuple of int. `U`.
    """

    init_checkpoint: str
    input_file: str
    spm_model_file: str
    max_bytes: int
    preset: str
    max_seq_length: int
    steps: int
    precision: str
    num_texts: int
    rounds: int
    batch_sizes: tuple[int, ...] = (32, 64)


def run(settings: Settings) -> Report:
    """Returns pairs and texts per second, and how many times faster ours is.

    Raises:
        UsageError: If sentence-transformers or torch is not installed.
        DataError: If the corpus has too few documents, or answers differ.
    """
    peer.require("embeddings", "sentence_transformers")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = os.path.join(folder, "text.txt")
        data_speed.write_lines(settings.input_file, corpus, settings.max_bytes)
        model = settings.init_checkpoint or save_random(settings, corpus, folder)
        context = multiprocessing.get_context("spawn")
        for part in (train, encode):
            with concurrent.futures.ProcessPoolExecutor(1, context) as process:
                rows += process.submit(part, settings, model, corpus).result()
    note = f"The library is {_PEER} {importlib.metadata.version(_PEER)}."
    return Report("Benchmark of vectors", rows, notes=(note,))


def save_random(settings: Settings, corpus: str, folder: str) -> str:
    """Writes a random model in the library's format; returns its folder."""
    spm_model = settings.spm_model_file or data_speed.train_spm(corpus, folder)
    config = albert_tf.AlbertConfig.from_preset(settings.preset)
    model = albert_tf.AlbertTextEmbedder(config, seed=_SEED)
    path, options = os.path.join(folder, "random"), {"format": "sentence_transformers"}
    model.save_pretrained(path, tokenizer=load_tokenizer(spm_model), **options)
    return path


def train(settings: Settings, model: str, corpus: str) -> list[Row]:
    """Trains on pairs: the first sentence of each document, and the rest of it."""
    most = max(settings.batch_sizes) * (settings.steps + 2)
    rest = {d[0]: " ".join(d[1:]) for d in open_corpus(corpus, "lines") if len(d) > 1}
    first = {text: sentence for sentence, text in rest.items()}  # each text once
    pairs = [[sentence, text] for text, sentence in first.items()]
    expected = f"input_file: expected {most} different documents of several sentences"
    require(len(pairs) >= most, expected, len(pairs), error=DataError)
    pairs = [pairs[i] for i in np.linspace(0, len(pairs) - 1, most).astype(int)]
    rows = []
    for size in settings.batch_sizes:
        loss, ours = _ours(settings, model, pairs, size)
        expected, theirs = _theirs(settings, model, pairs, size)
        apart = abs(loss - expected) / expected
        same = apart <= _SAME_LOSS[settings.precision]
        require(same, "the losses differ", loss, expected, error=DataError)
        facts = {"relative difference of the loss": apart}
        calls = {_PEER: (theirs, "", {}), _OURS: (ours, "at least 2", facts)}
        title = f"training, batches of {size} pairs, {settings.precision}"
        rows += _in_turns(title, calls, (size, "pairs/s", settings.steps))
    return rows


def _ours(settings, folder, pairs, size) -> tuple[float, Callable[[], object]]:
    """Returns the first batch's loss without dropout, and a function that trains."""
    policy = {"bfloat16": "mixed_bfloat16"}.get(settings.precision, settings.precision)
    model = albert_tf.AlbertTextEmbedder.from_pretrained(
        folder, seed=_SEED, dtype=policy
    )
    tokenizer, longest = model.preprocessor.tokenizer, _longest(settings, model)
    names, positives = list(map(str, range(len(pairs)))), [p[1] for p in pairs]
    texts = TextTuples("", names, pairs, positives, names, TUPLES)
    task = embedding_task("pairs").with_options(max_seq_length=longest)
    encoded = task.encode(texts, tokenizer)
    most, pad_id = model.config.max_position_embeddings, tokenizer.pad_id
    shape = BatchShape("text_embedder", longest, most, pad_id, packing=True)
    vectors = model(BatchMaker(encoded, shape)(_order(len(pairs))[:size]))
    loss = float(albert_tf.ContrastiveLoss()(np.zeros(size), vectors))
    strategy = tf.distribute.get_strategy()
    optimizer = albert_tf.create_optimizer(
        "adamw", learning_rate=_RATE, num_train_steps=10**6
    )
    step = TrainStep(model, Contrastive(), optimizer, strategy, seed=_SEED)
    data = make_training_dataset(encoded, shape, batch_size=size, seed=_SEED)
    batches = iter(distribute(strategy, lambda *_: data))
    # Reading the sum waits for the step.
    return loss, lambda: float(step.train(batches, 1)["loss_sum"])


def _theirs(settings, folder, pairs, size) -> tuple[float, Callable[[], object]]:
    """Returns the same as `_ours`, with the library's model and trainer."""
    import torch
    from sentence_transformers.sentence_transformer import losses

    model = _peer(settings, folder)
    loss = losses.MultipleNegativesRankingLoss(model)
    order, starts = _order(len(pairs)), iter(range(0, len(pairs), size))

    def compute(start: int):
        batch = [pairs[row] for row in order[start : start + size]]
        columns = map(list, zip(*batch, strict=True))
        return loss([model.preprocess(column) for column in columns], None)

    with torch.no_grad():
        first = float(compute(0))
    minimize = peer.make_minimizer(model, _RATE, settings.precision)
    return first, lambda: minimize(lambda: compute(next(starts)))


def _peer(settings: Settings, folder: str):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu").eval()
    model.max_seq_length = _longest(settings, model)
    return model


def _longest(settings: Settings, model) -> int:
    return min(settings.max_seq_length, model.max_seq_length or settings.max_seq_length)


def _order(count: int) -> np.ndarray:
    """Returns the order in which `make_training_dataset` reads examples."""
    return shuffled(tf.range(count, dtype=tf.int64), count, _SEED)[0].numpy()


def encode(settings: Settings, model: str, corpus: str) -> list[Row]:
    """Encodes texts, single sentences and whole documents."""
    use_one_thread_per_call(num_cores())
    texts = mixed_texts(corpus, settings.num_texts)
    theirs = _peer(settings, model)
    options = {"max_seq_length": theirs.max_seq_length, "num_threads": num_cores()}
    embed = albert_tf.Embedder.from_pretrained(model, **options)
    with tempfile.TemporaryDirectory() as folder:
        exports = _exports(embed, texts, folder)
    calls = {
        _PEER: lambda count: theirs.encode(texts[:count], show_progress_bar=False),
        _OURS: lambda count: embed(texts[:count]),
        **exports,
    }
    few, aims = min(len(texts), _WARM_UP), {_PEER: "", _OURS: "at least 1.2"}
    vectors = {name: call(few) for name, call in calls.items()}
    apart = {n: float(np.abs(x - vectors[_PEER]).max()) for n, x in vectors.items()}
    require(apart[_OURS] <= _SAME, "the vectors differ", apart, error=DataError)
    for name, call in calls.items():
        facts, aim = {"largest difference": apart[name]}, aims.get(name, "at least 2")
        calls[name] = counted(call, few, len(texts)), aim, facts
    return _in_turns("encoding", calls, (len(texts), "texts/s", settings.rounds))


def _exports(
    embed: albert_tf.Embedder, texts: list[str], folder: str
) -> dict[str, Contestant]:
    """Returns the exports that docs/guides/which_export.md recommends, by name.

    First a model that takes texts, then one that takes our tokenizer's token ids.
    """
    model, longest, fast = embed.model, embed.max_seq_length, cpu.has_bfloat16()
    precision = "bfloat16" if fast else "float32"
    options = {"tokenizer": embed.tokenizer, "max_seq_length": longest}
    options |= {"precision": precision, "warmup_batch_sizes": ()}
    path = albert_tf.export_saved_model(
        model, os.path.join(folder, "saved_model"), **options
    )
    loaded = tf.saved_model.load(path)
    runtime, kind = ("openvino", "bfloat16") if fast else ("onnx", "dynamic_int8")
    RUNTIMES[runtime].write(TokensGraph(model), folder, kind)
    run = RUNTIMES[runtime].runner(folder, kind)

    def from_texts(count: int) -> np.ndarray:
        def compute(rows: np.ndarray) -> np.ndarray:
            answer = loaded.signatures["serving_default"]
            batch = tf.constant([texts[row] for row in rows])
            return answer(text=batch)["embedding"].numpy()

        lengths = np.array([len(text) for text in texts[:count]])
        return _joined(compute, lengths, num_cores())

    def from_tokens(count: int) -> np.ndarray:
        some = {"texts": texts[:count], "max_seq_length": longest}
        encoded = inputs.encode_texts(embed.tokenizer, **some)

        def compute(rows: np.ndarray) -> np.ndarray:
            most, pad_id = int(encoded.lengths[rows].max()), embed.tokenizer.pad_id
            return run(inputs.padded_inputs(encoded, rows, most, pad_id))["embedding"]

        return _joined(compute, encoded.lengths, 1)  # it has two threads of its own

    return {
        f"{_OURS}, SavedModel, {precision}": from_texts,
        f"{_OURS}, {runtime}, {kind}": from_tokens,
    }


def _joined(compute, lengths: np.ndarray, num_threads: int) -> np.ndarray:
    """Returns the vectors of batches of similar length, in the order of the texts."""
    batches = sorted_batches(lengths, _ROWS)
    vectors = np.concatenate(list(in_threads(compute, batches, num_threads)))
    return vectors[np.argsort(np.concatenate(batches))]


def _in_turns(title: str, calls, amount: tuple[int, str, int]) -> list[Row]:
    """Returns rates and ratios.

    Args:
        calls: dict. By name a function, the aim of the ratio, and facts.
        amount: tuple. Number of items of a call, unit of the rate, and rounds.
    """
    (count, unit, rounds), rows, ratios = amount, [], []
    times = seconds_in_turns(
        {n: call for n, (call, *_) in calls.items()}, rounds, title
    )
    rates = {name: count / float(np.median(times[name])) for name in calls}
    for name, (_, aim, facts) in calls.items():
        facts = {**facts, "seconds": [round(x, 3) for x in times[name]]}
        rows.append(Row(f"{title}: {name}", rates[name], unit, details=facts))
        ratio = rates[name] / rates[_PEER]
        ratios.append(Row(f"{title}: {name} / {_PEER}", ratio, "", aim))
    return rows + ratios[1:]
