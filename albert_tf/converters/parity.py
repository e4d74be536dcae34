"""Verifies a conversion: compares tensors and outputs and reports the differences."""

import dataclasses
import gc
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import keras
import numpy as np

from albert_tf import features
from albert_tf.converters import huggingface, keras_model, sentence_transformers
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.keras_hub import NAME as KERAS_HUB
from albert_tf.errors import DataError, require
from albert_tf.heads import find
from albert_tf.storage.folders import FolderWriter
from albert_tf.text.tokenizer import Tokenizer

# Relative to the largest value of an output, or to 1 if that is larger. What a format
# cannot express (an epsilon in the masked LM head) stays below it; a wrong activation
# does not.
TOLERANCE = 1e-4
_SEED = 20191126
# Few tokens, because they determine most of the time of comparing xxlarge.
_LENGTH = 12
# Ordinary sentences first, then texts on which tokenizers often disagree.
TEXTS = tuple(
    json.loads(resources.files(__package__).joinpath("texts.json").read_text("utf-8"))
)
_HF_INPUTS = {
    features.TOKEN_IDS: "input_ids",
    features.SEGMENT_IDS: "token_type_ids",
    features.PADDING_MASK: "attention_mask",
}
_HF_OUTPUTS = {
    "logits": "logits",
    "start_logits": "start_logits",
    "end_logits": "end_logits",
    "prediction_logits": "mlm_logits",
    "sop_logits": "sop_logits",
    "seq_relationship_logits": "sop_logits",
    "pooler_output": "pooler",
}


@dataclasses.dataclass
class Report:
    """A conversion's parity report.

    Args:
        parameters: int. Number of values in the matched tensors.
        matched: list of dict. For every tensor our name, the names on both sides, the
            shape, and whether the values are equal bit for bit.
        dropped: list of str. Names in the source that are not weights.
        notes: list of str. Properties that the target's format cannot express.
        outputs: dict. For every layer and head the largest differences: `reload`
            between the two sides, both run here; `source_peer` and `target_peer`
            between this package and the peer library of a side.
        texts: dict. From `compare_texts`: texts whose ids differ.
    """

    source: str
    target: str
    source_format: str
    target_format: str
    head: str | None
    parameters: int = 0
    matched: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    only_in_source: list[str] = dataclasses.field(default_factory=list)
    only_in_target: list[str] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    outputs: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    texts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def write(self, out: FolderWriter) -> None:
        """Writes `parity.json` and `parity.txt`."""
        out.write_json("parity.json", dataclasses.asdict(self))
        out.write("parity.txt", (self.to_text() + "\n").encode())

    def to_text(self) -> str:
        """Returns the report as readable text."""
        exact = sum(row["equal"] for row in self.matched)
        lines = [
            f"{self.source} ({self.source_format}) -> {self.target} "
            f"({self.target_format}), head: {self.head or 'none'}",
            f"tensors matched: {len(self.matched)}, equal bit for bit: {exact}, "
            f"parameters: {self.parameters:,}",
        ]
        for title, names in (
            ("only in the source", self.only_in_source),
            ("only in the target", self.only_in_target),
            ("not weights, left out", self.dropped),
            ("note", self.notes),
        ):
            shown = names[:8] if title != "note" else names
            lines += [f"{title}: {name}" for name in shown]
            if len(names) > len(shown):
                lines.append(f"{title}: and {len(names) - len(shown)} more")
        there = {column for row in self.outputs.values() for column in row}
        columns = [column for column in _COLUMNS if column in there]
        if columns:
            heads = "".join(f"{_COLUMNS[c]:>16}" for c in columns)
            lines.append(f"{'largest difference':<24}{heads}")
        for part, row in self.outputs.items():
            cells = (f"{row[c]:16.2e}" if c in row else f"{'-':>16}" for c in columns)
            lines.append(f"{part:<24}{''.join(cells)}")
        for column, differ in self.texts.get("differ", {}).items():
            shown = "".join(f", such as {text!r}" for text in differ[:1])
            lines.append(
                f"texts with other ids, {_COLUMNS[column]}: {len(differ)} of "
                f"{self.texts['texts']}{shown}"
            )
        return "\n".join(lines)


_COLUMNS = {
    "reload": "re-loaded",
    "source_peer": "source's peer",
    "target_peer": "target's peer",
}


def compare(
    source: Checkpoint, part: Checkpoint, written: Checkpoint, target_format: str
) -> Report:
    """Compares the tensors of both sides, one at a time.

    `part` is the part of the source that was written, and `written` the target, opened
    again. Raises `DataError` if a value changed.
    """
    report = Report(
        source=source.origin or source.path,
        target=written.path,
        source_format=source.format,
        target_format=target_format,
        head=part.head,
        only_in_source=sorted(set(source.tensors) - set(written.tensors)),
        only_in_target=sorted(set(written.tensors) - set(source.tensors)),
        dropped=list(source.dropped),
        notes=[*source.notes, *part.notes],
    )
    for stem, one, other in _pairs(part, written):
        _compare_tensors(report, stem, one, other)
    if part.generator is not None and written.generator is None:
        report.notes.append(
            f"{target_format}: stores one net; the generator is left out, "
            "--head=masked_lm converts it"
        )
    return report


def _pairs(
    part: Checkpoint, written: Checkpoint
) -> list[tuple[str, Checkpoint, Checkpoint]]:
    """Returns the models that both sides have, with the prefix of their names."""
    first, second = part.nets, written.nets
    return [(stem, first[stem], second[stem]) for stem in first if stem in second]


def _compare_tensors(
    report: Report, stem: str, part: Checkpoint, written: Checkpoint
) -> None:
    for name, tensor in part.tensors.items():
        other = written.tensors.get(name)
        if other is None:
            continue
        first, second = tensor.read(), other.read()
        report.parameters += first.size
        names = {"source_name": tensor.name, "target_name": other.name}
        equal = np.array_equal(first, second)
        row = {"name": stem + name, **names, "shape": list(first.shape), "equal": equal}
        report.matched.append(row)
        message = f"{report.source}: {stem}{name} was changed by the conversion"
        require(equal, message, error=DataError)


def run_both(
    report: Report, part: Checkpoint, written: Checkpoint, with_peers: bool
) -> None:
    """Runs both sides one after the other and adds the differences to the report.

    `part` is the part of the source that was written, and `written` the target, opened
    again. With `with_peers`, the peer library of each side is also run. Raises
    `DataError` if an output differs by more than `TOLERANCE`.
    """
    batch = make_batch(part)
    source, target = outputs_of(part, batch), outputs_of(written, batch)
    _add(report, "reload", _comparable(source, part, written), target)
    for stem, one, other in _pairs(part, written)[1:]:
        inputs = make_batch(one)
        first, second = outputs_of(one, inputs), outputs_of(other, inputs)
        first = _comparable(first, one, other)
        first = {stem + name: value for name, value in first.items()}
        second = {stem + name: value for name, value in second.items()}
        _add(report, "reload", first, second)
    has_texts = part.tokenizer is not None and written.tokenizer is not None
    # One by one here, too: the batch method would warn about unknown tokens.
    ids = {"reload": map(written.make_tokenizer().encode, TEXTS)} if has_texts else {}
    sides = (
        ("source_peer", part, part.folder or report.source, source),
        ("target_peer", written, report.target, target),
    )
    for column, checkpoint, path, ours in sides if with_peers else ():
        peer = find_peer(checkpoint.format)
        if peer is None:
            report.notes.append(f"{checkpoint.format}: no library to compare with")
            continue
        _add(report, column, ours, peer.run(checkpoint, path, batch))
        if has_texts:
            ids[column] = peer.tokenize(path, TEXTS)
    if has_texts:
        report.texts = compare_texts(part.make_tokenizer(), ids)


def _comparable(
    outputs: dict[str, np.ndarray], part: Checkpoint, written: Checkpoint
) -> dict[str, np.ndarray]:
    """Returns the outputs of `part` that `written` has, too."""
    # If the vectors of layers became part of the biases before them, the states between
    # the layers contain them.
    if part.config.depth_embedding == written.config.depth_embedding:
        return outputs
    last = f"layer {len(part.config.layer_table())}"
    states = ("embeddings", "projection", "layer ")
    return {k: v for k, v in outputs.items() if k == last or not k.startswith(states)}


def compare_texts(
    tokenizer: Tokenizer, others: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, Any]:
    """Compares the ids of `TEXTS`: equal weights do not help if they differ.

    `others` holds the ids of each text for a column of the report. Returns the number
    of texts, and for every column the texts whose ids differ.
    """
    ours, differ = [*map(tokenizer.encode, TEXTS)], {}
    for column, theirs in others.items():
        rows = zip(TEXTS, ours, theirs, strict=True)
        differ[column] = [text for text, a, b in rows if list(a) != list(b)]
    return {"texts": len(TEXTS), "differ": differ}


def make_batch(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Returns two rows of random tokens with two segments; one row has padding."""
    rng = np.random.default_rng(_SEED)
    config, head = checkpoint.config, find(checkpoint.head)
    length, rank = min(_LENGTH, config.max_position_embeddings), head.input_rank
    shape = (2,) * (rank - 1) + (length,)
    segments = (np.arange(length) >= length // 2) * (config.type_vocab_size > 1)
    lengths = np.array([length, max(1, length - 5)])
    mask = np.arange(length) < lengths[:, None]
    batch = {
        features.TOKEN_IDS: rng.integers(0, config.vocab_size, shape),
        features.SEGMENT_IDS: np.broadcast_to(segments, shape),
        features.PADDING_MASK: np.broadcast_to(
            mask if rank == 2 else mask[:, None], shape
        ),
    }
    if head.has_masked_lm:
        batch[features.MASK_POSITIONS] = np.tile(np.arange(length), (2, 1))
    if head.has_beam:
        # Ends are scored given a start. Nothing is masked: logits of -1e30 would hide
        # differences of all other logits.
        batch[features.START_POSITIONS] = np.zeros(2)
        batch[features.P_MASK] = np.zeros(shape)
    return {k: value.astype(np.int32, order="C") for k, value in batch.items()}


def outputs_of(
    checkpoint: Checkpoint, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Builds a model, returns the output of every layer and head, and frees it."""
    model = keras_model.build_model(checkpoint, checkpoint.head)
    backbone = getattr(model, "backbone", model)
    flat = {k: batch[k].reshape(-1, batch[k].shape[-1]) for k in _HF_INPUTS}
    encoded = backbone(flat, output_hidden_states=True)
    result = {"embeddings": encoded["embedding_output"]}
    for i, state in enumerate(encoded["hidden_states"]):
        result["projection" if i == 0 else f"layer {i}"] = state
    if "pooled_output" in encoded and not model.untrained_weights:
        result["pooler"] = encoded["pooled_output"]
    if checkpoint.head is not None:
        result |= _heads(model(batch), model.untrained_weights)
    result = {k: keras.ops.convert_to_numpy(value) for k, value in result.items()}
    # Keras models are reference cycles; without this, two would be in memory.
    del model, backbone
    gc.collect()
    return result


def _heads(out: Any, untrained: list[str]) -> dict[str, Any]:
    """Returns logits, without the random ones of a head that the source lacks."""
    if not isinstance(out, dict):
        out = {"logits": out}
    missing = {name.split("/")[0] for name in untrained}
    if missing & {"classifier", "start_head", "end_head", "answer_head"}:
        return {}
    return {
        name: value
        for name, value in out.items()
        if name.endswith("logits")
        and f"{name.removesuffix('_logits')}_head" not in missing
    }


def _add(report: Report, column: str, first: dict, second: dict) -> None:
    for name, value in first.items():
        if name not in second:
            continue
        difference = float(np.abs(value - second[name]).max(initial=0.0))
        report.outputs.setdefault(name, {})[column] = difference
        largest = max(1.0, float(np.abs(value).max(initial=0.0)))
        if not difference <= TOLERANCE * largest:
            raise DataError(
                f"{report.source}: {name} differs by {difference:.2e} "
                f"({_COLUMNS[column]}), more than {TOLERANCE} of {largest:.3g}"
            )


class Peer(NamedTuple):
    """A library that runs the files of a format.

    Args:
        needs: tuple of str. Modules that must be installed.
        run: callable. From the checkpoint, the path of its folder and a batch from
            `parity.make_batch` to outputs named as by `parity.outputs_of`.
        tokenize: callable. From the path and texts to the ids of each text.
    """

    needs: tuple[str, ...]
    run: Callable[[Checkpoint, str, dict[str, np.ndarray]], dict[str, np.ndarray]]
    tokenize: Callable[[str, Sequence[str]], list[list[int]]]


def find_peer(format: str) -> Peer | None:
    """Returns the library for a format; None if none exists or is installed."""
    peer = _PEERS.get(format)
    installed = peer and all(map(importlib.util.find_spec, peer.needs))
    return peer if installed else None


def _run_transformers(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs a batch through transformers."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    family = huggingface.FAMILIES[checkpoint.config.family]
    cls = getattr(transformers, family.class_name(checkpoint.head))
    # Only the library's own classes are run, and a pickle is never loaded.
    model = cls.from_pretrained(
        path,
        attn_implementation="eager",
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
    ).eval()
    inputs = {v: torch.tensor(batch[k]).long() for k, v in _HF_INPUTS.items()}
    with torch.no_grad():
        out = model(**inputs, output_hidden_states=True)
    result = {
        ours: out[theirs].numpy()
        for theirs, ours in _HF_OUTPUTS.items()
        if out.get(theirs) is not None
    }
    for i, state in enumerate(out.hidden_states):
        # BERT's first state is its embeddings; ALBERT's the projected ones.
        result["projection" if i == 0 else f"layer {i}"] = state.numpy()
    return result


def _tokenize_transformers(path: str, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids that `AutoTokenizer` gives to texts, without special tokens."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(
        path, trust_remote_code=False
    )
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def _run_keras_hub(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs a batch through KerasHub."""
    import keras_hub

    cls = getattr(keras_hub.models, find(checkpoint.head).keras_hub_class)
    options = {} if checkpoint.head is None else {"preprocessor": None}
    model = cls.from_preset(path, **options)
    out = model(batch)
    if checkpoint.head is not None:
        return {"logits": keras.ops.convert_to_numpy(out)}
    last = f"layer {len(checkpoint.config.layer_table())}"
    values = {last: out["sequence_output"], "pooler": out["pooled_output"]}
    return {name: keras.ops.convert_to_numpy(value) for name, value in values.items()}


def _tokenize_keras_hub(path: str, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids that KerasHub's tokenizer gives to texts."""
    import keras_hub

    tokenizer = keras_hub.tokenizers.AlbertTokenizer.from_preset(path)
    return [[int(i) for i in tokenizer(text)] for text in texts]


def _run_sentence_transformers(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs a batch through sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(path, device="cpu", trust_remote_code=False)
    inputs = {v: torch.tensor(batch[k]).long() for k, v in _HF_INPUTS.items()}
    with torch.no_grad():
        vectors = model(inputs)["sentence_embedding"]
    return {"logits": vectors[:, : model.truncate_dim].numpy()}


# By format; the original, `tf1`, needs TensorFlow 1.
_PEERS = {
    huggingface.NAME: Peer(
        ("transformers", "torch"), _run_transformers, _tokenize_transformers
    ),
    KERAS_HUB: Peer(("keras_hub",), _run_keras_hub, _tokenize_keras_hub),
    sentence_transformers.NAME: Peer(
        ("sentence_transformers", "torch"),
        _run_sentence_transformers,
        _tokenize_transformers,
    ),
}
