"""Shows what training heals of an encoder whose layers were folded into one block.

An encoder of vectors, such as all-MiniLM-L6-v2, is folded with several ranks and sizes
of the tokens' vectors. Each of these students learns the vectors that the encoder, its
teacher, gives sentences without labels. As many steps of the same cost get two others:
a student of the first form with random weights, and every second layer of the teacher,
which takes half the time per step and so gets twice as many. Measured are the Spearman
correlation on STS-B's dev examples, the nDCG@10 of questions that search paragraphs of
SQuAD, and at the end the texts per second, in turns.
"""

import dataclasses
import functools
import json
import random
import re
from collections.abc import Callable, Sequence
from statistics import fmean, median

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
from benchmarks.turns import seconds_in_turns
from benchmarks.vectors import (
    METRICS,
    Dev,
    load_embedder,
    score_model,
    write_search,
    write_text,
)

_TRAINED = ", trained"
_NOTES = (
    "Scores of several seeds are means with the 95% interval of Student's t "
    "distribution; the seeds share all but the last fifth of the steps. No dev example "
    "selects anything: the weights after the last step are measured. MB are for "
    "float32. Speeds are medians of five rounds, in turns, with all cores.",
)
# With a rate of 1e-3 the folded layers are lost, and nothing is learned.
_OPTIONS = {"learning_rate": 3e-4, "warmup_proportion": 0.1, "train_batch_size": 16}
# Ranks and sizes of the tokens' vectors (None: the teacher's). The first form is also
# drawn at random, and trained with several seeds.
FORMS = ((8, 112), (0, 112), (32, 112), (8, None))
_TIMED = 256  # texts
# Sentences; steps; seeds; documents and queries, at most.
SCALES = {"full": (12_800, 800, 3, 300), "small": (500, 8, 2, 100)}
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
        max_seq_length: int. Tokens of a sentence that students read in training.
        forms: tuple. Ranks and sizes of the students.
    """

    work_dir: str
    teacher: str
    input_file: str
    stsb_dir: str
    squad_dev_file: str
    scale: str = "full"
    max_seq_length: int = 64
    forms: tuple[tuple[int, int | None], ...] = FORMS


def run(study: Study) -> Report:
    """Folds, heals and measures; what the study's folder holds is not made again.

    Raises:
        UsageError: If the folder holds another study, or a package is missing.
        DataError: If data or a model cannot be read.
    """
    count, steps, num_seeds, most = SCALES[study.scale]
    texts = _in_folder(study, "sentences.jsonl")
    if not files.exists(texts):
        rows = _sentences(study.input_file, count, random.Random(0))
        write_text(texts, "\n".join(files.to_json({"text": row}) for row in rows))
    write_search(study.squad_dev_file, study.work_dir, most, random.Random(0))
    dev = Dev(study.stsb_dir, study.work_dir)
    rows = {"teacher": _measure(study, dev, "teacher", [study.teacher])}
    timed = {"teacher": study.teacher}

    def show(name: str, make: Callable[[str], None], steps: int, last: int = 0) -> str:
        """Measures a student as it is made, and after training; returns its folder."""
        path = timed[name] = _in_folder(study, name)
        if not files.exists(path):
            make(path)
        rows[name] = _measure(study, dev, name, [path])
        outputs = [f"{path}-trained"]
        train = functools.partial(_train, study, texts)
        train(path, outputs[0], steps - last, 1)
        if last:
            outputs = [f"{path}-seed-{1 + seed}" for seed in range(num_seeds)]
            for seed, output in enumerate(outputs, 1):
                train(f"{path}-trained", output, last, seed)
        rows[name + _TRAINED] = _measure(study, dev, name + _TRAINED, outputs)
        return path

    names = [f"rank {rank}, E {size or 'as the teacher'}" for rank, size in study.forms]
    makes = [functools.partial(_fold, study.teacher, *form) for form in study.forms]
    folded = show(names[0], makes[0], steps, steps // 5)
    for name, make in zip(names[1:], makes[1:], strict=True):
        show(name, make, steps)
    show(f"{names[0]}, random", functools.partial(_randomize, folded), steps)
    # Half the layers take half the time.
    show("every second layer", functools.partial(_halve, study.teacher), 2 * steps)
    read = random.Random(0).sample(dev.texts, min(len(dev.texts), _TIMED))
    calls = {n: functools.partial(load_embedder(x), read) for n, x in timed.items()}
    for name, seconds in seconds_in_turns(calls, 5, "rounds").items():
        rows[name]["texts/s"] = len(read) / median(seconds)
    return _report(rows)


def _in_folder(study: Study, name: str) -> str:
    return files.join(study.work_dir, re.sub(r"[^\w.]+", "-", name))


def _sentences(inputs: str, count: int, rng: random.Random) -> list[str]:
    """Returns sentences of a corpus in any order."""
    found = {" ".join(one.split()) for text in open_corpus(inputs) for one in text}
    return rng.sample(sorted(found), min(count, len(found)))


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


def _train(
    study: Study, texts: str, start: str, output: str, steps: int, seed: int
) -> None:
    """Trains a student on the teacher's vectors, unless it is done."""
    finetune_once(
        FinetuneSettings(
            init_checkpoint=start,
            train_file=texts,
            table_kind="vectors",
            teacher=study.teacher,
            cache_teacher=_in_folder(study, "teacher.npz"),
            output_dir=output,
            max_seq_length=study.max_seq_length,
            num_train_steps=steps,
            dropout=0.0,
            seed=seed,
            **_OPTIONS,
        )
    )


def _measure(study: Study, dev: Dev, name: str, models: Sequence[str]) -> dict:
    """Returns sizes of one form of model, and the scores of all its seeds."""
    path = _in_folder(study, f"{name}.json")
    if files.exists(path):
        return json.loads(files.read_text(path))
    scores = [score_model(dev, model) for model in models]
    found = {
        "parameters": AlbertTextEmbedder.from_pretrained(models[0]).count_params(),
        **{metric: [one[metric] for one in scores] for metric in METRICS},
    }
    write_text(path, files.to_json(found))
    return found


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
            "texts/s": f"{row['texts/s']:.0f}" if "texts/s" in row else "",
        }
        found.append(Row(name, scores["spearman"].mean, "", details=row))
    text = "\n".join(to_table(table))
    title = "Folded encoders of vectors, healed by their teacher"
    return Report(title, found, picture=_draw(rows), notes=_NOTES, text=text)


def _draw(rows: dict[str, dict]) -> bytes:
    """Returns a PNG of the Spearman correlation against the number of parameters."""
    figure = new_figure(8, 4, layout="constrained")
    axes = figure.subplots()
    forms = list(dict.fromkeys(name.removesuffix(_TRAINED) for name in rows))
    for name, row in rows.items():
        place = row["parameters"] / 1e6, fmean(row["spearman"])
        form, trained = name.removesuffix(_TRAINED), name.endswith(_TRAINED)
        label = None if trained else form
        style = {"color": f"C{forms.index(form)}", "marker": "o" if trained else "x"}
        axes.plot(*place, **style, linestyle="", label=label)
    figure.legend(loc="outside right center", title="x: as made; dot: trained")
    axes.set(xlabel="million parameters", ylabel=METRICS["spearman"])
    axes.grid(alpha=0.3)
    return to_png(figure)
