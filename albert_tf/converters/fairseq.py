"""Reads and writes `model.pt` of fairseq's RoBERTa and of SpanBERT.

fairseq stores a dict with the weights under `model` and the settings of the run, an
`argparse.Namespace`, under `args`, or in later versions under `cfg`. SpanBERT's model
with its two heads was published as the weights alone. Names are given here without the
`decoder.` or `encoder.` that all of them begin with.
"""

import argparse
import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.converters import huggingface, torch_file
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.converters.table import (
    ALBERT_FIELDS,
    CONFIG_FIELDS,
    Names,
    Row,
    read_checkpoint,
    rename,
    rows_of,
    untie,
)
from albert_tf.converters.tokenizers import attach_tokenizer, write_file
from albert_tf.errors import DataError, require
from albert_tf.heads import find
from albert_tf.storage import files
from albert_tf.storage.folders import FolderWriter
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.wordpiece import WordPieceTokenizer

NAME = "fairseq"
WEIGHTS = "model.pt"
_PARTS = (".weight", ".bias")
# In all released models.
_HEAD_SIZE = 64
_LAYER = re.compile(r"\blayers?\.(\d{1,6})\.")
_NO_WEIGHTS = re.compile(r"(^|\.)(version|_float_tensor|position_ids)$")
# What versions name otherwise; a fused layer norm has torch's names.
_RENAMES = (
    (re.compile(r"^(decoder|encoder)\."), ""),
    (re.compile(r"\bemb_layer_norm\."), "layernorm_embedding."),
    (re.compile(r"\b(LayerNorm|layer_norm[12])\.weight$"), r"\1.gamma"),
    (re.compile(r"\b(LayerNorm|layer_norm[12])\.bias$"), r"\1.beta"),
)
_JOINT = re.compile(r"(.*\.)in_proj_(weight|bias)")
_HEADS = "classification_heads."
_CLASSIFIER = re.compile(r"classification_heads\.([^.]+)\.")
# The name that fairseq's fine-tuning gives the head.
_HEAD = f"{_HEADS}sentence_classification_head."
_TOKEN_TYPES = "backbone/embeddings/token_type_embeddings"
_POSITIONS = "backbone/embeddings/position_embeddings"
# What a run of fairseq calls our fields.
_SETTINGS = {
    "encoder_layers": "num_hidden_layers",
    "encoder_embed_dim": "hidden_size",
    "encoder_ffn_embed_dim": "intermediate_size",
    "encoder_attention_heads": "num_attention_heads",
    "activation_fn": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "pooler_dropout": "classifier_dropout_prob",
    "max_positions": "max_position_embeddings",
}
# What else fairseq looks for where it loads a file.
_RUN = {"arch": "roberta_base", "task": "masked_lm"}
_STATE = {
    "optimizer_history": [{"lr_scheduler_state": {}, "num_updates": 0}],
    "extra_state": {"train_iterator": {"epoch": 1}},
}
# Fields that config files of BERT's family in 2019 do not have.
_NO_FIELDS = ("layer_norm_eps", "classifier_dropout_prob")


@dataclasses.dataclass(frozen=True)
class Model:
    """Describes the file of one family of models; `MODELS` lists them all.

    Args:
        preset: str. Config with what no tensor shows.
        names: `Names`. Those of dense layers and layer norms.
        norm: tuple of str. What the names of gamma and beta end in.
        others: tuple of `Row`. All other weights, the token table first.
        tied: mapping. Names of tied weights to the names they are read by.
        tokenizer: str. The files to be put next to the model, in words.
        tokenizer_file: str. The one that is written.
        kind: str. What the model is called.
        prefix: str. What names begin with in a file that is written.
        heads: tuple. The heads that are written.
        fixed: mapping. Fields and options to the values that its code can have.
    """

    preset: str
    names: Names
    norm: tuple[str, str]
    others: tuple[Row, ...]
    tied: Mapping[str, str]
    tokenizer: str
    tokenizer_file: str
    kind: str
    prefix: str
    heads: tuple[str | None, ...]
    fixed: Mapping[str, tuple]

    def rows(self, config: AlbertConfig) -> list[Row]:
        """Returns the rows of a model with all its heads."""
        layers = self.names.layers_of(config)
        return [*self.others, *rows_of(layers, _PARTS, self.norm, transpose=True)]

    def full_name(self, name: str) -> str:
        """Returns the name of a weight in a file that is written."""
        is_inside = not name.startswith(_HEADS)
        return self.prefix + name if is_inside else name.replace(_HEADS, _HEAD)


_BERT = huggingface.FAMILIES["bert"]
_PAIR = "cls.pair_target_predictions"
_STEM = "sentence_encoder"
_BERT_TOKENS = _BERT.table_rows()[0].theirs
# By `AlbertConfig.family`.
MODELS = {
    "bert": Model(
        preset="bert_base",
        names=dataclasses.replace(
            _BERT,
            layers={
                **_BERT.layers,
                "sbo_head/dense_0": f"{_PAIR}.mlp_layer_norm.linear1",
                "sbo_head/layer_norm_0": f"{_PAIR}.mlp_layer_norm.layer_norm1",
                "sbo_head/dense": f"{_PAIR}.mlp_layer_norm.linear2",
                "sbo_head/layer_norm": f"{_PAIR}.mlp_layer_norm.layer_norm2",
            },
        ),
        norm=(".gamma", ".beta"),
        others=(
            *_BERT.table_rows(),
            Row("mlm_head/output_bias", _BERT.mlm_bias),
            Row("sbo_head/output_bias", f"{_PAIR}.bias"),
            Row("sbo_head/position_embeddings", f"{_PAIR}.position_embeddings.weight"),
        ),
        tied={
            f"{_BERT.decoder}.weight": _BERT_TOKENS,
            f"{_PAIR}.decoder.weight": _BERT_TOKENS,
        },
        tokenizer="vocab.txt of the same model",
        tokenizer_file=WordPieceTokenizer.file_name,
        kind="SpanBERT",
        prefix="decoder.",
        heads=("span_boundary",),
        fixed={
            "hidden_act": ("gelu", "relu"),
            "layer_norm_eps": (1e-12,),
            "mlm_layer_norm_eps": (None, 1e-12),
            "share_layer_norm": (True,),
            "position_size": (200,),
        },
    ),
    "roberta": Model(
        preset="roberta_base",
        names=Names(
            tables="",
            scope=f"{_STEM}.layers.{{group}}",
            layers={
                "backbone/embeddings/layer_norm": f"{_STEM}.layernorm_embedding",
                "backbone/encoder/attention_{}/query": "{}.self_attn.q_proj",
                "backbone/encoder/attention_{}/key": "{}.self_attn.k_proj",
                "backbone/encoder/attention_{}/value": "{}.self_attn.v_proj",
                "backbone/encoder/attention_{}/output": "{}.self_attn.out_proj",
                "backbone/encoder/attention_layer_norm_{}": "{}.self_attn_layer_norm",
                "backbone/encoder/ffn_{}/intermediate": "{}.fc1",
                "backbone/encoder/ffn_{}/output": "{}.fc2",
                "backbone/encoder/ffn_layer_norm_{}": "{}.final_layer_norm",
                "mlm_head/dense": "lm_head.dense",
                "mlm_head/layer_norm": "lm_head.layer_norm",
                "backbone/pooler": "classification_heads.dense",
                "classifier": "classification_heads.out_proj",
            },
        ),
        norm=_PARTS,
        others=(
            Row("backbone/embeddings/word_embeddings", f"{_STEM}.embed_tokens.weight"),
            Row(_POSITIONS, f"{_STEM}.embed_positions.weight"),
            Row("mlm_head/output_bias", "lm_head.bias"),
        ),
        tied={"lm_head.weight": f"{_STEM}.embed_tokens.weight"},
        tokenizer="tokenizer.json, or vocab.json and merges.txt, of the same model at "
        "Hugging Face; dict.txt, encoder.json and vocab.bpe are not read",
        tokenizer_file=ByteBPETokenizer.file_name,
        kind="RoBERTa",
        prefix="encoder.",
        heads=("masked_lm", "text_classifier", None),
        fixed={
            "hidden_act": ("gelu",),
            "layer_norm_eps": (1e-5,),
            "mlm_layer_norm_eps": (None, 1e-5),
            "share_layer_norm": (True,),
            "type_vocab_size": (1,),
            "position_offset": (2,),
        },
    ),
}


def matches(path: str, listed: set[str], config: dict | None) -> bool:
    """Returns whether a folder holds a `model.pt`."""
    return WEIGHTS in listed and (config or {}).get("format") != "albert_tf"


def read(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Opens a folder with a `model.pt`.

    Without a `config.json`, sizes are those of the tensors; the number of attention
    heads is that of the run's settings, or else the size is 64.

    Args:
        path: str. Path of the folder.
        config: `AlbertConfig` or None. Used instead of what the folder says.

    Raises:
        DataError: If a file is damaged, or holds something else.
    """
    where, config_path = files.join(path, WEIGHTS), files.join(path, "config.json")
    theirs, settings = _load(where)
    model = next((m for m in MODELS.values() if m.others[0].theirs in theirs), None)
    known = " or ".join(m.others[0].theirs for m in MODELS.values())
    require(model, f"{where}: needs a tensor {known}, found none", error=DataError)
    if config is None and files.exists(config_path):
        config = huggingface.read_config(config_path)
    config = config or _config(where, model, theirs, settings)
    rule = f"{where}: holds the names of another family than the config's"
    require(MODELS.get(config.family) is model, rule, config.family, error=DataError)
    untie(path, theirs, model.tied)
    rows = model.rows(config)
    checkpoint = read_checkpoint(NAME, path, config, None, rows, theirs, _NO_WEIGHTS)
    ours = checkpoint.tensors
    if config.type_vocab_size == 1:  # which has no table there
        zeros = np.zeros((1, config.embedding_size), np.float32)
        ours.setdefault(_TOKEN_TYPES, Tensor.of(_TOKEN_TYPES, zeros))
    if "classifier/kernel" in ours:
        checkpoint.head = "text_classifier"
    elif places := ours.get("sbo_head/position_embeddings"):
        checkpoint.head = "span_boundary"
        sizes = zip(find(checkpoint.head).options, places.shape, strict=False)
        checkpoint.head_options = dict(sizes)
    attach_tokenizer(checkpoint, path)
    if checkpoint.tokenizer is None:
        logging.warning("%s: no tokenizer; it needs %s", path, model.tokenizer)
    return checkpoint


def _load(where: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors, without what only versions differ in, and the settings."""
    stored = torch_file.load(where, argparse.Namespace)
    settings, state = stored.get("args"), stored
    if isinstance(stored.get("model"), Mapping):
        state, later = stored["model"], stored.get("cfg")
        if settings is None and isinstance(later, Mapping):
            settings = later.get("model")
    if isinstance(settings, argparse.Namespace):
        settings = vars(settings)
    theirs = {}
    for name, tensor in torch_file.tensors(where, state).items():
        for pattern, new in _RENAMES:
            name = pattern.sub(new, name)
        theirs[name] = dataclasses.replace(tensor, name=name)
    found = {match[1] for name in theirs if (match := _CLASSIFIER.match(name))}
    if len(found) == 1:  # others are left by their names, and refused
        theirs = {_CLASSIFIER.sub(_HEADS, k): t for k, t in theirs.items()}
    return _apart(theirs), settings if isinstance(settings, Mapping) else {}


def _apart(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Divides the joint projection of queries, keys and values of early versions."""
    result = {}
    for name, tensor in theirs.items():
        if not (joint := _JOINT.fullmatch(name)):
            result[name] = tensor
            continue
        D = math.prod(tensor.shape[:1]) // 3
        for i, part in enumerate("qkv"):
            new = f"{joint[1]}{part}_proj.{joint[2]}"
            result[new] = dataclasses.replace(tensor, name=new).map(
                (D, *tensor.shape[1:]), lambda x, i=i, D=D: x[i * D : (i + 1) * D]
            )
    return result


def _config(
    where: str, model: Model, theirs: Mapping[str, Tensor], settings: Mapping[str, Any]
) -> AlbertConfig:
    """Returns the config that tensors and settings show."""
    usual = AlbertConfig.from_preset(model.preset)
    rows = {row.ours: row for row in model.rows(usual)}

    def shape_of(name: str) -> tuple[int, ...]:
        row = rows[f"backbone/{name}"]
        tensor = theirs.get(row.theirs)
        rule = f"{where}: needs a matrix {row.theirs}"
        is_there = tensor is not None and len(tensor.shape) == 2
        require(is_there, rule, error=DataError)
        return row.to_ours(tensor).shape

    vocab_size, D = shape_of("embeddings/word_embeddings")
    numbers = [int(found[1]) for name in theirs if (found := _LAYER.search(name))]
    heads = settings.get("encoder_attention_heads", settings.get("num_attention_heads"))
    rule = (
        f"{where}: without settings of the run or a config.json, hidden_size must be a "
        f"multiple of {_HEAD_SIZE}"
    )
    require(heads or D % _HEAD_SIZE == 0, rule, D, error=DataError)
    function = settings.get("activation_fn", settings.get("hidden_act", "gelu"))
    rule = f"{where}: the activation function must be gelu"
    require(function == "gelu", rule, function, error=DataError)
    try:
        return usual.replace(
            vocab_size=vocab_size,
            embedding_size=D,
            hidden_size=D,
            num_hidden_layers=max(numbers, default=0) + 1,
            num_attention_heads=heads or D // _HEAD_SIZE,
            intermediate_size=shape_of("encoder/ffn_0/intermediate/kernel")[1],
            max_position_embeddings=shape_of("embeddings/position_embeddings")[0]
            - usual.position_offset,
        )
    except ValueError as e:
        raise DataError(f"{where}: {e}") from None


def write(checkpoint: Checkpoint, out: FolderWriter) -> None:
    """Writes a RoBERTa, or a model with SpanBERT's two heads, as the published ones.

    Args:
        checkpoint: `Checkpoint`. What to write.
        out: `FolderWriter`. Destination.

    Raises:
        UsageError: If their code does not compute the model, or torch is missing.
    """
    config, head = checkpoint.config, checkpoint.head
    family = "bert" if head == "span_boundary" else "roberta"
    model, is_roberta = MODELS[family], family == "roberta"
    rule = (
        f"{NAME} stores RoBERTa's masked_lm, text_classifier or encoder, and SpanBERT, "
        "with the head span_boundary"
    )
    fits = head in model.heads and (config.family == family or not is_roberta)
    require(fits, rule, config.family, head)
    rule = (
        f"{NAME}: {model.kind} has the family {family}, unshared layers and "
        "embedding_size equal to hidden_size"
    )
    sizes = config.embedding_size, config.hidden_size
    is_plain = config.replace(family=None, position_offset=0).family == "bert"
    require(
        is_plain and config.family == family,
        rule,
        config.family,
        config.sharing,
        *sizes,
    )
    values = {**vars(config), **checkpoint.head_options}
    for name, allowed in model.fixed.items():
        rule = f"{NAME}: {name} must be {' or '.join(map(str, allowed))}, as "
        require(values[name] in allowed, f"{rule}{model.kind}'s", values[name])
    ours = _as_roberta(checkpoint) if is_roberta else checkpoint.tensors
    theirs = rename(model.rows(config), ours, NAME)
    tied = model.tied if find(head).has_masked_lm else {}
    around = {}
    if is_roberta:
        settings = {name: getattr(config, field) for name, field in _SETTINGS.items()}
        around = {"args": argparse.Namespace(**_RUN, **settings), **_STATE}
    with out.open(WEIGHTS) as f:
        named = {model.full_name(name): tensor for name, tensor in theirs.items()}
        second = {model.full_name(k): model.full_name(v) for k, v in tied.items()}
        torch_file.write(f, named, second, around)
    if not is_roberta:
        fields = [f for f in CONFIG_FIELDS if f not in (*ALBERT_FIELDS, *_NO_FIELDS)]
        out.write_json("config.json", {name: getattr(config, name) for name in fields})
    if checkpoint.tokenizer is not None:
        name = model.tokenizer_file
        write_file(checkpoint.make_tokenizer(), {name: name}, NAME, out)


def _as_roberta(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Returns the tensors without a table of segments, and what has no place."""
    ours = checkpoint.tensors = dict(checkpoint.tensors)
    notes, segments = checkpoint.notes, ours[_TOKEN_TYPES].read()
    if segments.any():
        table = ours[_POSITIONS]
        ours[_POSITIONS] = table.map(table.shape, lambda x: x + segments)
        ours[_TOKEN_TYPES] = Tensor.of(_TOKEN_TYPES, np.zeros_like(segments))
        notes.append(f"{NAME}: has no segments; their row is added to the positions")
    if checkpoint.head != "masked_lm":
        notes.append(f"{NAME}: its class has a masked LM, too, and needs strict=False")
    if checkpoint.labels:
        notes.append(f"{NAME}: names of labels are left out")
    left = [_TOKEN_TYPES]
    if checkpoint.head != "text_classifier":
        left += [name for name in ours if name.startswith("backbone/pooler/")]
    return {name: tensor for name, tensor in ours.items() if name not in left}
