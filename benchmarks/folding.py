"""Shows what training heals of an encoder whose layers were folded into one block.

An encoder of vectors, such as all-MiniLM-L6-v2, is folded with several ranks and sizes
of the tokens' vectors. Each of these students learns the vectors that the encoder, its
teacher, gives texts without labels. As many steps of the same cost get two others: a
student of the same form with random weights, and every second layer of the teacher,
which takes half the time per step and so gets twice as many. Measured are the Spearman
correlation on STS-B's dev examples, and the nDCG@10 of questions that search
paragraphs of SQuAD.
"""

import dataclasses
import functools
import random
import re
import time
from collections.abc import Callable, Sequence
from statistics import fmean

import keras

import albert_tf
from albert_tf.converters.fold_settings import FoldSettings
from albert_tf.converters.folding import fold_checkpoint
from albert_tf.converters.keras_model import build_model, from_model
from albert_tf.data.corpus.corpus import open_corpus
from albert_tf.figure import new_figure, to_png
from albert_tf.models.embedder import AlbertTextEmbedder
from albert_tf.storage import files
from albert_tf.training.finetune import finetune_once
from albert_tf.training.finetune_settings import FinetuneSettings
from benchmarks.objectives_report import estimate, to_table
from benchmarks.report import Report, Row
from benchmarks.vectors import METRICS, Dev, score_model, write_search, write_text

_TRAINED = ", trained"
_NOTES = (
    "Scores of several seeds are means with the 95% interval of Student's t "
    "distribution. No dev example selects anything: the weights after the last step "
    "are measured. MB are for float32.",
)
_LENGTH = 128
_LEARNING_RATE, _BATCH_SIZE = 5e-4, 64
# Texts of a corpus are so many neighbouring sentences, at most.
_SENTENCES = 3
# Ranks, sizes of the tokens' vectors (None: the teacher's); the form with several
# seeds, which is also drawn at random.
FORMS = ((0, None), (8, None), (32, None), (0, 128), (8, 128), (32, 128))
BEST = (8, 112)
# Texts; steps; seeds; documents and queries, at most.
SCALES = {"full": (64_000, 1_000, 3, 1000), "small": (500, 8, 2, 100)}
_LAYER = re.compile(r"(backbone/encoder/\w+?_)(\d+)(/.*)")


@dataclasses.dataclass(frozen=True)
class Study:
    """A study of folded encoders.

    Attributes:
        work_dir: str. Folder of its texts and models.
        teacher: str. Folder of an encoder of vectors whose layers share nothing.
        input_file: str. Corpus of the texts without labels.
        stsb_dir: str. Folder with dev.tsv of STS-B.
        squad_dev_file: str. File of SQuAD whose paragraphs are searched.
        scale: str. One of `SCALES`.
        forms: tuple. Ranks and sizes of the students, instead of `FORMS`.
    """

    work_dir: str
    teacher: str
    input_file: str
    stsb_dir: str
    squad_dev_file: str
    scale: str = "full"
    forms: tuple[tuple[int, int | None], ...] = (*FORMS, BEST)


def run(study: Study) -> Report:
    """Folds, heals and measures; what the study's folder holds is not made again.

    Raises:
        UsageError: If the folder holds another study, or a package is missing.
        DataError: If data or a model cannot be read.
    """
    num_texts, steps, num_seeds, most = SCALES[study.scale]
    texts = files.join(study.work_dir, "texts.jsonl")
    if not files.exists(texts):
        rows = _texts(study.input_file, num_texts, random.Random(0))
        lines = [files.to_json({"text": row}) for row in rows]
        write_text(texts, "\n".join(lines))
    write_search(study.squad_dev_file, study.work_dir, most, random.Random(0))
    dev = Dev(study.stsb_dir, study.work_dir)
    rows = {"teacher": _measure(dev, [study.teacher])}

    def show(name: str, make: Callable[[str], None], steps: int, num_seeds: int = 1):
        """Measures a student as it is made, and after training."""
        path = files.join(study.work_dir, re.sub(r"\W+", "-", name))
        if not files.exists(path):
            make(path)
        rows[name] = _measure(dev, [path])
        trained = [f"{path}-trained-{seed}" for seed in range(1, num_seeds + 1)]
        for seed, output in enumerate(trained, 1):
            finetune_once(_training(study, texts, path, output, steps, seed))
        rows[f"{name}{_TRAINED}"] = _measure(dev, trained)
        return path

    for rank, size in study.forms:
        name = f"rank {rank}, E {size or 'as the teacher'}"
        is_last = (rank, size) == study.forms[-1]
        make = functools.partial(_fold, study.teacher, rank, size)
        folded = show(name, make, steps, num_seeds if is_last else 1)
    show(f"{name}, random", functools.partial(_randomize, folded), steps)
    # Half the layers take half the time.
    make = functools.partial(_halve, study.teacher)
    show("every second layer", make, 2 * steps)
    return _report(rows)


def _texts(inputs: str, count: int, rng: random.Random) -> list[str]:
    """Returns one to three neighbouring sentences at a time, in any order."""
    rows = []
    for document in open_corpus(inputs):
        place = 0
        while place < len(document):
            end = place + rng.randint(1, _SENTENCES)
            rows.append(" ".join(" ".join(document[place:end]).split()))
            place = end
    rows = sorted(set(rows))
    return rng.sample(rows, min(count, len(rows)))


def _fold(teacher: str, rank: int, size: int | None, path: str) -> None:
    settings = FoldSettings(depth_rank=rank, embedding_size=size)
    fold_checkpoint(teacher, path, settings)


def _randomize(source: str, path: str) -> None:
    """Writes a model of the same form with random weights."""
    model = AlbertTextEmbedder.from_pretrained(source)
    keras.utils.set_random_seed(1)
    fresh = type(model).from_config(model.get_config())
    fresh.preprocessor = model.preprocessor
    albert_tf.save_pretrained(fresh, path)


def _halve(source: str, path: str) -> None:
    """Writes a model with every second layer of a model without shared layers."""
    model = AlbertTextEmbedder.from_pretrained(source)
    with from_model(model) as checkpoint:
        tensors = {}
        for name, tensor in checkpoint.tensors.items():
            if match := _LAYER.fullmatch(name):
                if int(match[2]) % 2 == 0:
                    continue
                name = f"{match[1]}{int(match[2]) // 2}{match[3]}"
            tensors[name] = tensor
        layers = checkpoint.config.num_hidden_layers // 2
        config = checkpoint.config.replace(num_hidden_layers=layers)
        half = dataclasses.replace(checkpoint, config=config, tensors=tensors)
        kept = build_model(half)
    kept.preprocessor = model.preprocessor
    albert_tf.save_pretrained(kept, path)


def _training(
    study: Study, texts: str, start: str, output: str, steps: int, seed: int
) -> FinetuneSettings:
    """Returns the settings of a training on the teacher's vectors."""
    return FinetuneSettings(
        init_checkpoint=start,
        train_file=texts,
        table_kind="vectors",
        teacher=study.teacher,
        cache_teacher=files.join(study.work_dir, "teacher.npz"),
        output_dir=output,
        max_seq_length=_LENGTH,
        learning_rate=_LEARNING_RATE,
        train_batch_size=_BATCH_SIZE,
        num_train_steps=steps,
        dropout=0.0,
        seed=seed,
    )


def _measure(dev: Dev, models: Sequence[str]) -> dict:
    """Returns sizes of one form of model, and the scores of all its seeds."""
    model = AlbertTextEmbedder.from_pretrained(models[0])
    began = time.perf_counter()
    scores = [score_model(dev, model) for model in models]
    seconds = (time.perf_counter() - began) / len(models)
    return {
        "parameters": model.count_params(),
        "texts/s": len(dev.texts) / seconds,
        **{name: [one[name] for one in scores] for name in METRICS},
    }


def _report(rows: dict[str, dict]) -> Report:
    """Returns a table with a row for each model, and a picture."""
    table, found = {}, []
    whole = fmean(rows["teacher"]["spearman"])
    for name, row in rows.items():
        scores = {metric: estimate(row[metric]) for metric in METRICS}
        share = f"{scores['spearman'].mean / whole:.1%}"
        table[name] = {
            "parameters": f"{row['parameters']:,}",
            "MB": f"{4e-6 * row['parameters']:.1f}",
            **{METRICS[metric]: score for metric, score in scores.items()},
            "of the teacher": share,
            "texts/s": f"{row['texts/s']:.0f}",
        }
        found.append(Row(name, scores["spearman"].mean, "", details=row))
    text = "\n".join(to_table(table))
    title = "Folded encoders of vectors, healed by their teacher"
    return Report(title, found, picture=_draw(rows), notes=_NOTES, text=text)


def _draw(rows: dict[str, dict]) -> bytes:
    """Returns a PNG of the Spearman correlation against the number of parameters."""
    figure = new_figure(8, 5, layout="constrained")
    axes = figure.subplots()
    for name, row in rows.items():
        place = row["parameters"] / 1e6, fmean(row["spearman"])
        trained = name.endswith(_TRAINED)
        axes.plot(*place, "o" if trained else "x", color=f"C{trained:d}")
        axes.annotate(name, place, xytext=(5, 3), textcoords="offset points", size=8)
    axes.set(xlabel="million parameters", ylabel=METRICS["spearman"])
    axes.grid(alpha=0.3)
    return to_png(figure)
