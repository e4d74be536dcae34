"""Evaluates a pretrained model on records, like the evaluations of its run.

A head about pairs may be tested on records that it was not trained on (paper, Table 5:
a model of NSP on sentence order, and the reverse). The labels then come from the
records. 1 always means that the second segment does not follow the first: they are
swapped (SOP), or it is from another document (NSP).
"""

import dataclasses
import os
from typing import Any

from albert_tf.converters import own_format
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import open_checkpoint
from albert_tf.converters.growing import first_layers
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.data.batches.reader import data_errors
from albert_tf.data.records import shards
from albert_tf.errors import require
from albert_tf.objectives.pretraining import (
    NEXT_SENTENCE,
    OBJECTIVES,
    PAIR_LABELS,
    SENTENCE_ORDER,
    Objective,
)
from albert_tf.objectives.recipes import OWN_SETTINGS
from albert_tf.storage import files, hubs
from albert_tf.training import pretrain_inputs
from albert_tf.training.engine import EvaluationStep, default_strategy
from albert_tf.training.pretrain import find_objective
from albert_tf.training.pretrain_batches import RunBatches
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.start import make_pretrainer

# Settings of a run that decide what its evaluations measure, some for one objective.
_OF_OBJECTIVES = (
    "pair_loss_weight",
    *(name for names in OWN_SETTINGS.values() for name in names),
)
_OF_RUNS = (
    *("objective", "masking", "masked_lm_prob", "ngram", "packing"),
    *("max_seq_length", "max_predictions_per_seq", "seed", "precision"),
    *_OF_OBJECTIVES,
)
# The meaning of pair labels, by the --pair_policy of the records.
_MEANT = {"clean": SENTENCE_ORDER, "original": SENTENCE_ORDER, "nsp": NEXT_SENTENCE}


def evaluate_records(
    path: str | os.PathLike, eval_file: str, layers: int | None = None, **given: Any
) -> dict[str, Any]:
    """Evaluates a run, or a model with its heads, as an evaluation of pretraining does.

    Masks follow from the seed and differ between examples. Fields of `PretrainSettings`
    that are not given come from the run of the model, or else from the defaults of a
    new run; `max_eval_steps` is 0 by default, which means all batches. Returns the
    metrics, under the names that runs log, and the settings that decide them; `learned`
    and `labels` say what pair labels mean to the head, and in these records.
    """
    path = os.fspath(path)
    paths = pretrain_inputs.card_paths(shards.find_shards(eval_file))
    cards = [files.read_json(p) for p in paths]
    with open_checkpoint(path) as start:
        recorded = _recorded(path)
        values = {**_of_model(start, cards), **recorded, "max_eval_steps": 0}
        if given.get("objective") not in (None, values["objective"]):
            # Another objective may lack these settings.
            values = {k: v for k, v in values.items() if k not in _OF_OBJECTIVES}
        values |= {k: v for k, v in given.items() if v is not None}
        values |= {"input_file": eval_file, "eval_file": eval_file, "output_dir": path}
        knows_nets = values["objective"] != "electra" or "embedding_sharing" in values
        require(knows_nets, f"{path}: both nets are evaluated in the folder of a run")
        if layers is not None:
            need = "layers: with --objective=electra, one number does not fit both nets"
            require(values["objective"] != "electra", need, layers)
            start = first_layers(start, layers)
        tokenizer = choose_tokenizer(start, values.pop("spm_model_file", None))
        settings = PretrainSettings(
            spm_model_file=path, init_checkpoint=path, sample_texts=(), **values
        )
        learned = find_objective(settings)
        objective = _on_records(learned, cards)
        config = start.config
        segments = config.type_vocab_size
        pretrain_inputs.check_sizes(settings, config, tokenizer)
        # A recorded limit from longer rows is not a mistake of the user.
        most, length = given.get("max_predictions_per_seq"), settings.max_seq_length
        need = f"--max_predictions_per_seq must be at most --max_seq_length={length}"
        require((most or 0) <= length, need, most)
        memory = pretrain_inputs.memory_of_machine() or 0
        pretrain_inputs.check_eval_batch(settings, config, 1, memory)
        data = RunBatches(settings, objective, tokenizer, 1, segments, trains=False)
        model = make_pretrainer(settings, start, config, objective.head, settings.dtype)
    trained = _trained(objective, path, model.untrained_weights)
    data.objective = trained
    step = EvaluationStep(model, trained, default_strategy())
    evaluate = data.make_evaluate(step)
    with data_errors():
        metrics = evaluate()
    # The record says what was learned, whatever the model is evaluated as.
    learned = OBJECTIVES.get(recorded.get("objective"), learned)
    about = zip(("learned", "labels"), (learned, objective), strict=True)
    kinds = {key: t.name for key, one in about for t in one.terms if t.optional}
    if f"{kinds.get('labels')}_accuracy" in metrics:
        metrics |= {k: f"{name}: {PAIR_LABELS[name]}" for k, name in kinds.items()}
    shown = ("objective", "masking", "seed", "max_seq_length")
    evaluated = data.evaluated_on()
    return {
        "model": path,
        "eval_file": eval_file,
        **{name: getattr(settings, name) for name in shown},
        **{k: evaluated[k] for k in ("masked_lm_prob", "max_ngram", "rows")},
        **metrics,
    }


def _recorded(path: str) -> dict[str, Any]:
    """Returns the settings of the run that a path belongs to, or {} without one."""
    if hubs.is_name(path):
        return {}
    # Makes the path absolute, so that one that ends with a dot has a parent folder.
    path = path.rstrip("/") if files.is_remote(path) else os.path.abspath(path)
    run, _ = own_format.find_run(path) or (os.path.dirname(path), None)
    record = files.read_record(files.join(run, "run.json"))
    if record.get("kind"):
        return {}
    recorded = record.get("settings") or {}
    return {name: recorded[name] for name in _OF_RUNS if name in recorded}


# Objective by the head of a model; for pairs it also depends on the family.
_LEARNED = {
    "pretraining": "albert",
    "masked_lm": "roberta",
    "span_boundary": "spanbert",
    "discriminator": "electra",
}


def _of_model(start: Checkpoint, cards: list[dict]) -> dict[str, Any]:
    """Returns settings that follow from a model and from the cards of records."""
    need = f"{start.path}: must have a pretraining head ({', '.join(_LEARNED)})"
    require(start.head in _LEARNED, need, start.head)
    is_bert = (start.head, start.config.family) == ("pretraining", "bert")
    lengths = [card["max_seq_length"] for card in cards if "max_seq_length" in card]
    options = start.head_options
    return {
        "objective": "bert" if is_bert else _LEARNED[start.head],
        "max_seq_length": max(lengths, default=start.config.max_position_embeddings),
        **{name: options[name] for name in _OF_RUNS if name in options},
    }


def _on_records(objective: Objective, cards: list[dict]) -> Objective:
    """Returns the objective with the pair labels of some records."""
    policies = {card["pair_policy"]: None for card in cards if card.get("pair_policy")}
    meant = {_MEANT[p] for p in policies if p in _MEANT}
    need = "--eval_file: its records must have labels of one kind, not of --pair_policy"
    require(len(meant) <= 1, f"{need}={' and '.join(policies)}")
    named = {k: getattr(term, k) for term in meant for k in ("name", "title")}
    terms = (
        dataclasses.replace(term, **named) if term.optional else term
        for term in objective.terms
    )
    allowed = (*objective.pair_policies, *policies)
    return dataclasses.replace(objective, terms=tuple(terms), pair_policies=allowed)


def _trained(objective: Objective, path: str, untrained: frozenset[str]) -> Objective:
    """Returns the objective without its pair term if the pair head is untrained."""
    pairs = {n for n in untrained if n.startswith(("sop_head/", "backbone/pooler/"))}
    others = sorted(set(untrained) - pairs)
    need = f"{path}: has no trained {', '.join(others)}; --objective={objective.name}"
    require(not others, f"{need} needs it")
    terms = tuple(t for t in objective.terms if not (pairs and t.optional))
    return dataclasses.replace(objective, terms=terms)
