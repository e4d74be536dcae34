"""Computes cases of the step benchmark with transformers: torch, SDPA, one GPU or CPU.

As its Trainer does: AdamW in one kernel, bfloat16 by autocast, clipped gradients. The
encoder alone, as in its table of SDPA, has weights in half precision, a mask, and is
not compiled.
"""

import functools
import time
from collections.abc import Callable, Mapping

import torch
import transformers

from benchmarks import peer
from benchmarks.cases import (
    EAGER,
    FUSED,
    OUTPUT,
    STEP,
    Case,
    Prepared,
    prepared_or_failed,
)

_RATE = 1e-5
_ATTENTION = {EAGER: "eager", FUSED: "sdpa"}
_FIELDS = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "num_attention_heads",
    "intermediate_size",
    "inner_group_num",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
)
_TYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def device() -> str:
    """Returns the kind of the device."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def prepare(cases: Mapping[str, Case]) -> dict[str, Prepared]:
    """Makes the models, and computes the first step of each."""
    return {
        name: prepared_or_failed(functools.partial(_prepare, case))
        for name, case in cases.items()
    }


def _prepare(case: Case) -> Prepared:
    on_gpu = torch.cuda.is_available()
    place = torch.device("cuda" if on_gpu else "cpu")
    before = 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    start = time.perf_counter()
    step = _step(case, place) if case.work == STEP else _encoder(case, place)

    def run(steps: int) -> None:
        for _ in range(steps):
            step()
        if on_gpu:
            torch.cuda.synchronize()

    run(1)
    facts: dict[str, float] = {"first": time.perf_counter() - start}
    if on_gpu:
        facts["memory"] = torch.cuda.max_memory_allocated() - before
    return Prepared(run, facts)


def _config(case: Case):
    values = {name: getattr(case.config, name) for name in _FIELDS}
    return transformers.AlbertConfig(
        **values, attn_implementation=_ATTENTION[case.attention]
    )


def _step(case: Case, place) -> Callable[[], object]:
    """Returns a function that trains a step."""
    batch = peer.pretraining_inputs(case.batch)
    if batch["attention_mask"].all() and not case.masked:
        del batch["attention_mask"]
    given = {k: torch.as_tensor(v).long().to(place) for k, v in batch.items()}
    model = transformers.AlbertForPreTraining(_config(case)).to(place)
    train = peer.make_step(model, _RATE, case.precision, case.compiled)
    return lambda: train(given)


def _encoder(case: Case, place) -> Callable[[], object]:
    """Returns a function that computes the encoder, or its gradients."""
    batch = peer.pretraining_inputs(case.batch)
    names = ("input_ids", "token_type_ids", "attention_mask")
    given = {k: torch.as_tensor(batch[k]).long().to(place) for k in names}
    model = transformers.AlbertModel(_config(case)).to(place, _TYPES[case.precision])
    if case.work == OUTPUT:
        model.eval()
        return torch.inference_mode()(lambda: model(**given))
    model.train()

    def differentiate():
        model.zero_grad()
        states = model(**given).last_hidden_state
        (states.float() ** 3).sum().backward()

    return differentiate
