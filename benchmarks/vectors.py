"""Shows what training makes of the vectors of encoders, compared with word counts.

Each encoder is measured as it is, after training on STS-B's scores, and after training
on pairs without labels: pairs of a table, such as names of functions and what their
docstrings say, and SQuAD's questions and paragraphs. Measured are the Spearman
correlation on STS-B's dev examples, and the nDCG@10 of questions that search the
paragraphs of another file of SQuAD.

Legend: `N` texts, `Q` queries, `D` documents, `E` numbers of a vector.
"""

import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse, stats
from sklearn.feature_extraction.text import CountVectorizer

from albert_tf.converters.load import load_config
from albert_tf.environment import num_cores
from albert_tf.inference.embedder import Embedder
from albert_tf.storage import files
from albert_tf.tasks.embedding import EMBEDDER, as_embedding, unit_vectors
from albert_tf.tasks.registry import find_task
from albert_tf.tasks.task import table_text
from albert_tf.training.finetune import finetune_once
from albert_tf.training.finetune_settings import FinetuneSettings
from benchmarks.objectives_jobs import forget_graphs
from benchmarks.objectives_report import estimate, to_table
from benchmarks.report import Report, Row

_LENGTH = 128
# Learning rates of encoders with up to 128 hidden units, and of wider ones.
_RATES = 5e-4, 5e-5
_K1, _B = 1.2, 0.75  # of BM25
METRICS = {"spearman": "STS-B, Spearman", "ndcg_at_10": "search, nDCG@10"}
# Seeds; training examples, at most; documents and queries, at most.
SCALES = {"full": (3, 1000, 1000), "small": (3, 256, 200)}
_NOTES = (
    "Scores are means over seeds with the 95% interval of Student's t distribution. No "
    "dev example selects anything: the weights after one epoch are measured.",
)
# From texts to their vectors, `[N, E]`.
Encode = Callable[[list[str]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Study:
    """A study of vectors.

    Attributes:
        work_dir: str. Folder of its tables and runs.
        models: tuple of str. Folders of encoders.
        stsb_dir: str. Folder with train.tsv and dev.tsv of STS-B.
        squad_train_file: str. File of SQuAD whose pairs are trained on.
        squad_dev_file: str. File of SQuAD whose paragraphs are searched.
        train_file: str. Table with other pairs, "text" and "positive"; may be empty.
        scale: str. One of `SCALES`.
    """

    work_dir: str
    models: tuple[str, ...]
    stsb_dir: str
    squad_train_file: str
    squad_dev_file: str
    train_file: str = ""
    scale: str = "full"


def run(study: Study) -> Report:
    """Trains encoders, unless they are in the study's folder, and measures them.

    Raises:
        UsageError: If the folder holds another study, or a package is missing.
        DataError: If data or a model cannot be read.
    """
    num_seeds, num_examples, _ = SCALES[study.scale]
    sources, dev = _write_data(study), Dev(study.stsb_dir, study.work_dir)
    count = CountVectorizer().fit([*dev.first, *dev.second, *dev.search.documents])
    words = dev.score(lambda texts: count.transform(texts).toarray())
    scores = {"BM25": [dev.rank(bm25)], "bag of words": [words]}
    for number, model in enumerate(study.models):
        scores[f"{model}, as it is"] = [score_model(dev, model)]
        options = {
            "init_checkpoint": model,
            "max_train_examples": num_examples,
            "max_seq_length": _LENGTH,
            "learning_rate": _RATES[load_config(model).hidden_size > 128],
            "num_train_epochs": 1.0,
        }
        for kind, source in sources.items():
            trained = scores[f"{model}, after {kind}"] = []
            for seed in range(1, num_seeds + 1):
                name = f"{number}-{kind.replace(' ', '-')}-{seed}"
                path = files.join(study.work_dir, name)
                finetune_once(
                    FinetuneSettings(output_dir=path, seed=seed, **options, **source)
                )
                trained.append(score_model(dev, path))
    return _report(scores)


def bm25(queries: list[str], documents: list[str]) -> np.ndarray:
    """Returns the scores `[Q, D]` of BM25."""
    counter = CountVectorizer()
    counts = counter.fit_transform(documents).tocoo()
    lengths = np.asarray(counts.sum(1)).ravel()
    having = np.bincount(counts.col, minlength=counts.shape[1])
    weights = np.log1p((len(documents) - having + 0.5) / (having + 0.5))
    least = _K1 * (1 - _B + _B * lengths / lengths.mean())
    values = counts.data * (_K1 + 1) / (counts.data + least[counts.row])
    places = counts.row, counts.col
    terms = sparse.csr_array((values * weights[counts.col], places), counts.shape)
    return (sparse.csr_array(counter.transform(queries)) @ terms.T).toarray()


class Dev:
    """The dev examples of STS-B, and what is searched."""

    def __init__(self, stsb_dir: str, work_dir: str):
        pairs = as_embedding(find_task("stsb")).splits["dev"].read(stsb_dir)
        self.first, self.second = map(list, zip(*pairs.texts, strict=True))
        self.labels, self.task = pairs.labels, find_task("beir")
        folder = files.join(work_dir, "beir")
        self.search = self.task.splits["test"].read(folder)

    @property
    def texts(self) -> list[str]:
        """Returns every text that is encoded."""
        searched = [*self.search.texts, *self.search.documents]
        return [*self.first, *self.second, *searched]

    def score(self, encode: Encode) -> dict[str, float]:
        """Returns the scores of vectors by their metric."""

        def cosines(*texts: list[str]) -> np.ndarray:
            first, second = (unit_vectors(encode(one)) for one in texts)
            return first @ second.T

        values = np.diagonal(cosines(self.first, self.second))
        spearman = float(stats.spearmanr(values, self.labels).statistic)
        return {"spearman": spearman, **self.rank(cosines)}

    def rank(self, compare: Callable) -> dict[str, float]:
        """Returns the nDCG for the scores `[Q, D]` of queries and documents."""
        search = self.search
        scores = compare(search.texts, search.documents).tolist()
        answers = [dict(zip(search.document_ids, x, strict=True)) for x in scores]
        return {"ndcg_at_10": self.task.compare(search, answers)["ndcg_at_10"]}


def score_model(dev: Dev, model: str) -> dict[str, float]:
    """Returns the scores of a folder's model by their metric."""
    scores = dev.score(load_embedder(model))
    forget_graphs()
    return scores


def load_embedder(model: str) -> Embedder:
    """Loads a folder's model to give texts vectors on all cores."""
    options = {"max_seq_length": _LENGTH, "num_threads": num_cores()}
    return Embedder.from_pretrained(model, **options)


def _write_data(study: Study) -> dict[str, dict[str, Any]]:
    """Writes a table and a folder of BEIR; returns settings of sources by name."""
    rng, most = random.Random(0), SCALES[study.scale][-1]
    table = files.join(study.work_dir, "questions.tsv")
    pairs = _questions(study.squad_train_file, rng)
    write_text(table, table_text([("text", "positive"), *pairs]))
    write_search(study.squad_dev_file, study.work_dir, most, rng)
    path = files.join(study.stsb_dir, "train.tsv")
    sources = {"STS-B": {"train_file": path, "task": "stsb", "answer_head": EMBEDDER}}
    if study.train_file:
        name = study.train_file.rpartition("/")[2]
        sources[name] = {"train_file": study.train_file}
    return {**sources, "SQuAD": {"train_file": table}}


def write_search(squad_file: str, work_dir: str, most: int, rng: random.Random) -> None:
    """Writes a folder of BEIR: questions of a file of SQuAD search its paragraphs."""
    pairs = _questions(squad_file, rng)
    documents = list(dict.fromkeys(text for _, text in pairs))[:most]
    ids = {text: f"d{i}" for i, text in enumerate(documents)}
    pairs = [(f"q{i}", *row) for i, row in enumerate(pairs) if row[1] in ids][:most]
    texts = {"queries": {name: text for name, text, _ in pairs}}
    texts["corpus"] = {name: text for text, name in ids.items()}
    for name, rows in texts.items():
        lines = [files.to_json({"_id": key, "text": x}) for key, x in rows.items()]
        write_text(files.join(work_dir, "beir", f"{name}.jsonl"), "\n".join(lines))
    rows = [("query-id", "corpus-id", "score")]
    rows += [(name, ids[text], "1") for name, _, text in pairs]
    write_text(files.join(work_dir, "beir/qrels/test.tsv"), table_text(rows))


def _questions(path: str, rng: random.Random) -> list[tuple[str, str]]:
    """Returns the questions of a file of SQuAD and their paragraphs, in any order."""
    rows = [
        (" ".join(asked["question"].split()), " ".join(paragraph["context"].split()))
        for article in files.read_json(path)["data"]
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
        if asked["answers"]
    ]
    return rng.sample(rows, len(rows))


def write_text(path: str, text: str) -> None:
    """Writes a file of a study, and its folder."""
    files.make_folder(path.rpartition("/")[0])
    files.write_text(path, text, True)


def _report(scores: Mapping[str, list[dict[str, float]]]) -> Report:
    """Returns a table with a row for each encoder and training."""
    rows, table = [], {}
    for name, seeds in scores.items():
        table[name] = dict.fromkeys(METRICS.values(), "")
        for metric in seeds[0]:
            title, values = METRICS[metric], [one[metric] for one in seeds]
            table[name][title] = score = estimate(values)
            facts = {"seeds": values}
            rows.append(Row(f"{name}: {title}", score.mean, "", details=facts))
    text = "\n".join(to_table(table))
    return Report("Study of vectors", rows, notes=_NOTES, text=text)
