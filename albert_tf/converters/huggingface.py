"""Reads and writes Hugging Face folders: weights, config and tokenizer.

Weights are read from safetensors or an old torch file and written as safetensors.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.config_files import ORIGINAL, dialect_of
from albert_tf.converters import equivalents, safetensors_file, torch_file
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.converters.table import (
    ALBERT_FIELDS,
    BERT_BLOCK,
    CONFIG_FIELDS,
    PROJECTION,
    Names,
    Row,
    check_layers,
    read_checkpoint,
    rename,
    rows_of,
)
from albert_tf.converters.tokenizers import attach_tokenizer, write_huggingface
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import all_rows, find
from albert_tf.storage import files
from albert_tf.storage.folders import FolderWriter

NAME = "huggingface"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TORCH_WEIGHTS = "pytorch_model.bin"
# Lists what sentence-transformers does after the transformer.
MODULES = "modules.json"
# Prefixes that torch adds to the names of a distributed or compiled model.
_WRAPPED = re.compile(r"^(module\.|_orig_mod\.)+")
_LEGACY = re.compile(r"(LayerNorm|layer_norm)\.(gamma|beta)$")
# Buffers that old versions saved.
_NO_WEIGHTS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")
_PARTS = (".weight", ".bias")
_POOLER = "backbone/pooler"
# Heads with a classifier; ambiguous ones come last.
_CLASSIFIERS = (
    "question_answering",
    "text_classifier",
    "multiple_choice",
    "token_classifier",
)


@dataclasses.dataclass(frozen=True)
class Family(Names):
    """Holds Hugging Face's names for one family; `FAMILIES` lists them all.

    Args:
        mlm_bias: str. Name of the masked LM's bias.
        decoder: str. Name of the masked LM's output layer, whose weights are tied.
        class_prefix: str. Prefix of its class names; in lower case, its `model_type`
            and the prefix of the encoder's weights.
        classes: mapping. Heads to the endings of its class names, where they differ
            from `heads.HEADS`; empty if it has no such class.
        head_layers: mapping. Heads to the layers with other names in their models.
        has_groups: bool. Whether layers are stored as groups that share weights, and
            the embeddings are projected even if E = D, as in ALBERT.
        config_names: mapping. Our names of config fields to theirs, where they differ;
            None for a field that they do not have.
    """

    mlm_bias: str
    decoder: str
    class_prefix: str
    classes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    head_layers: Mapping[str, Mapping[str, str]] = dataclasses.field(
        default_factory=dict
    )
    has_groups: bool = False
    config_names: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    @property
    def model_type(self) -> str:
        """The `model_type` of its config files."""
        return self.class_prefix.lower()

    @property
    def stem(self) -> str:
        """Prefix of the encoder's weight names in a model with a head."""
        return f"{self.model_type}."

    def class_name(self, head: str | None) -> str:
        """Returns the name of the class of a head; empty if there is no such class."""
        row = find(head)
        name = self.classes.get(head, row.huggingface_class)
        return name and self.class_prefix + name

    def for_head(self, head: str | None) -> "Family":
        """Returns the names in a model with this head."""
        own = self.head_layers.get(head, {})
        return dataclasses.replace(self, layers={**self.layers, **own})


_ANSWERS = {"question_answering": {"classifier": "qa_outputs"}}


def _plain(prefix: str, layers: Mapping[str, str], **values) -> Family:
    """Returns a family with BERT's encoder, and other layers around the blocks."""
    stem = prefix.lower()
    blocks = {ours: theirs.replace("/", ".") for ours, theirs in BERT_BLOCK.items()}
    norm = {"backbone/embeddings/layer_norm": f"{stem}.embeddings.LayerNorm"}
    names = dict.fromkeys(ALBERT_FIELDS)
    defaults = {
        "tables": f"{stem}.embeddings.{{}}.weight",
        "scope": f"{stem}.encoder.layer.{{group}}",
        "head_layers": _ANSWERS,
        "config_names": {**names, "classifier_dropout_prob": "classifier_dropout"},
    }
    layers = {**norm, **blocks, "classifier": "classifier", **layers}
    return Family(class_prefix=prefix, layers=layers, **{**defaults, **values})


# RoBERTa's and ELECTRA's two dense layers take the places of pooler and classifier.
_TWO_LAYERS = {_POOLER: "classifier.dense", "classifier": "classifier.out_proj"}
# By `AlbertConfig.family`.
FAMILIES = {
    "albert": Family(
        class_prefix="Albert",
        tables="albert.embeddings.{}.weight",
        scope="albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}",
        layers={
            "backbone/embeddings/layer_norm": "albert.embeddings.LayerNorm",
            PROJECTION: "albert.encoder.embedding_hidden_mapping_in",
            "backbone/encoder/attention_{}/query": "{}.attention.query",
            "backbone/encoder/attention_{}/key": "{}.attention.key",
            "backbone/encoder/attention_{}/value": "{}.attention.value",
            "backbone/encoder/attention_{}/output": "{}.attention.dense",
            "backbone/encoder/attention_layer_norm_{}": "{}.attention.LayerNorm",
            "backbone/encoder/ffn_{}/intermediate": "{}.ffn",
            "backbone/encoder/ffn_{}/output": "{}.ffn_output",
            "backbone/encoder/ffn_layer_norm_{}": "{}.full_layer_layer_norm",
            _POOLER: "albert.pooler",
            "classifier": "classifier",
            "mlm_head/dense": "predictions.dense",
            "mlm_head/layer_norm": "predictions.LayerNorm",
            "sop_head": "sop_classifier.classifier",
        },
        mlm_bias="predictions.bias",
        decoder="predictions.decoder",
        head_layers=_ANSWERS,
        has_groups=True,
    ),
    "bert": _plain(
        "Bert",
        layers={
            _POOLER: "bert.pooler.dense",
            "mlm_head/dense": "cls.predictions.transform.dense",
            "mlm_head/layer_norm": "cls.predictions.transform.LayerNorm",
            "sop_head": "cls.seq_relationship",
        },
        mlm_bias="cls.predictions.bias",
        decoder="cls.predictions.decoder",
    ),
    "roberta": _plain(
        "Roberta",
        layers={
            _POOLER: "roberta.pooler.dense",
            "mlm_head/dense": "lm_head.dense",
            "mlm_head/layer_norm": "lm_head.layer_norm",
        },
        mlm_bias="lm_head.bias",
        decoder="lm_head.decoder",
        classes={"pretraining": ""},
        head_layers={
            **_ANSWERS,
            "text_classifier": _TWO_LAYERS,
            "multiple_choice": {_POOLER: "roberta.pooler.dense"},
        },
    ),
    "electra": _plain(
        "Electra",
        layers={
            PROJECTION: "electra.embeddings_project",
            "mlm_head/dense": "generator_predictions.dense",
            "mlm_head/layer_norm": "generator_predictions.LayerNorm",
            "discriminator/dense": "discriminator_predictions.dense",
            "discriminator/prediction": "discriminator_predictions.dense_prediction",
        },
        mlm_bias="generator_lm_head.bias",
        decoder="generator_lm_head",
        classes={"pretraining": "", "discriminator": "ForPreTraining"},
        head_layers={
            **_ANSWERS,
            "text_classifier": _TWO_LAYERS,
            "multiple_choice": {_POOLER: "sequence_summary.summary"},
        },
        config_names={
            **dict.fromkeys(ALBERT_FIELDS[1:]),
            "classifier_dropout_prob": "classifier_dropout",
        },
    ),
}


def matches(path: str, listed: set[str], config: dict | None) -> bool:
    """Returns whether a folder is in Hugging Face's format."""
    weights = {WEIGHTS, INDEX, TORCH_WEIGHTS} & listed
    foreign = config is not None and (
        config.get("format") == "albert_tf" or "registered_name" in config
    )
    return bool(weights) and not foreign and MODULES not in listed


def read(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Opens a folder; `config` replaces the config in it.

    Raises `DataError` if a file is missing, damaged or invalid.
    """
    config_path = files.join(path, "config.json")
    if not files.exists(config_path):
        raise DataError(f"{path}: holds weights but no config.json")
    values = files.read_json(config_path)
    config = config or read_config(config_path)
    stored = _tensors(path)
    theirs = {_modern(name): t for name, t in stored.items()}
    need = f"{path}: holds a tensor under two names, of different versions of a library"
    require(len(theirs) == len(stored), need, error=DataError)
    family = FAMILIES[config.family]
    is_bare = not any(name.startswith(family.stem) for name in theirs)
    _untie(path, theirs, family, is_bare)
    head, named = _head(values, theirs, family), config
    if family.has_groups:
        config = equivalents.read_groups(config, NAME)
        named = config.replace(group_rule=NAME)
    rows = name_table(named, head, is_bare)
    checkpoint = read_checkpoint(NAME, path, config, head, rows, theirs, _NO_WEIGHTS)
    attach_tokenizer(checkpoint, path)
    if find(checkpoint.head).has_labels:
        checkpoint.labels = _labels(path, values)
    checkpoint.problem_type = values.get("problem_type")
    if family.has_groups:
        equivalents.fold_projection(checkpoint)
    is_one_layer = "text_classifier" not in family.head_layers
    is_named = values.get("architectures") or not is_one_layer
    if checkpoint.head == "text_classifier" and not is_named:
        checkpoint.also = ("token_classifier", "multiple_choice")
    return checkpoint


def read_config(path: str) -> AlbertConfig:
    """Reads a config file next to weights for torch, or raises `DataError`."""
    config = AlbertConfig.from_json(path)
    is_old = config.family == "bert" and dialect_of(files.read_json(path)) == ORIGINAL
    if is_old and config.hidden_act == "gelu_new":
        # BERT's folders of 2019 and SpanBERT's contain the original's config file, for
        # classes that compute the exact function.
        return config.replace(hidden_act="gelu")
    return config


def write(checkpoint: Checkpoint, out: FolderWriter, needs_pooler: bool = True) -> None:
    """Writes the files of a folder.

    Raises `UsageError` if Hugging Face's classes cannot express the model, or they
    would draw the weights of a pooler that is needed.
    """
    checkpoint = _as_written(checkpoint)
    head, config = checkpoint.head, checkpoint.config
    family = FAMILIES[config.family]
    message = f"{NAME} has no {family.class_prefix} with a head like {head}"
    other = "sentence_transformers" if head == "text_embedder" else "tf1"
    message = f"{message}; {other} and albert_tf store it"
    require(family.class_name(head), message)
    message = f"{NAME} cannot express share_layer_norm=False"
    require(config.share_layer_norm, message)
    if family.has_groups:
        config = equivalents.as_groups(config, NAME, NAME)
        message = (
            f"{NAME} would need weights for groups that none of "
            f"{config.num_hidden_layers} layers uses"
        )
        is_full = len(config.group_numbers()) == config.num_hidden_groups
        require(is_full, message)
    else:
        check_layers(config, family, NAME, family.class_prefix)
    ours = _with_pooler(checkpoint, family, needs_pooler)
    if family.has_groups:
        ours = equivalents.unfold_projection(config, ours)
    theirs = rename(name_table(config, head, is_bare=head is None), ours, NAME)
    with out.open(WEIGHTS) as f:
        safetensors_file.write(f, theirs, {"format": "pt"})
    out.write_json("config.json", _config(checkpoint, config, family))
    if checkpoint.tokenizer is not None:
        write_huggingface(checkpoint.make_tokenizer(), config, out)


def _as_written(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint without the parts that none of their classes has."""
    row = find(checkpoint.head)
    if row.written_as is None:
        return checkpoint
    left = [part for part in row.parts if part not in find(row.written_as).parts]
    checkpoint.notes.append(f"{NAME} has no {', '.join(left)}; it is left out")
    ours, is_left = checkpoint.tensors, tuple(f"{part}/" for part in left)
    ours = {name: t for name, t in ours.items() if not name.startswith(is_left)}
    return dataclasses.replace(checkpoint, head=row.written_as, tensors=ours)


def _with_pooler(
    checkpoint: Checkpoint, family: Family, is_needed: bool
) -> dict[str, Tensor]:
    """Leaves out the pooler if the head's class has none."""
    head, ours = checkpoint.head, dict(checkpoint.tensors)
    pooler = [name for name in ours if name.startswith("backbone/pooler/")]
    has_pooler = _POOLER in family.for_head(head).layers
    if head is None and has_pooler and not pooler and is_needed:
        raise UsageError(f"{NAME}: its bare model has a pooler, this one has none")
    if pooler and not (has_pooler and find(head).uses_pooler):
        checkpoint.notes.append(f"{NAME}: {head} has no pooler; it is left out")
        ours = {name: t for name, t in ours.items() if name not in pooler}
    return ours


def _config(checkpoint: Checkpoint, config: AlbertConfig, family: Family) -> dict:
    renamed = family.config_names
    same = [field for field in CONFIG_FIELDS if field not in renamed]
    result = {
        "architectures": [family.class_name(checkpoint.head)],
        "model_type": family.model_type,
        **{field: getattr(config, field) for field in same},
        "dtype": "float32",
        "tie_word_embeddings": True,
        **{theirs: getattr(config, ours) for ours, theirs in renamed.items() if theirs},
    }
    if config.position_offset:
        result["max_position_embeddings"] = config.num_positions
        result["pad_token_id"] = config.position_offset - 1
    eps = config.mlm_layer_norm_eps
    if eps not in (None, config.layer_norm_eps) and "mlm_head/output_bias" in (
        checkpoint.tensors
    ):
        checkpoint.notes.append(
            f"{NAME} uses layer_norm_eps={config.layer_norm_eps} in the masked LM "
            f"head too, not {eps}: logits differ by about 2e-5"
        )
    if checkpoint.tokenizer is not None:
        tokenizer = checkpoint.make_tokenizer()
        result["pad_token_id"] = tokenizer.pad_id
        result["bos_token_id"] = tokenizer.cls_id
        result["eos_token_id"] = tokenizer.sep_id
    head = find(checkpoint.head)
    if head.has_classifier and head.fixed_labels is None:
        count = checkpoint.num_labels
        labels = checkpoint.labels or [f"LABEL_{i}" for i in range(count)]
        result["id2label"] = {str(i): label for i, label in enumerate(labels)}
        result["label2id"] = {label: i for i, label in enumerate(labels)}
    if checkpoint.problem_type:
        result["problem_type"] = checkpoint.problem_type
    return result


def _tensors(path: str) -> dict[str, Tensor]:
    listed = set(files.list_folder(path))
    if WEIGHTS in listed:
        return safetensors_file.read(files.join(path, WEIGHTS))
    if INDEX in listed:
        return safetensors_file.read_sharded(files.join(path, INDEX))
    return torch_file.load(files.join(path, TORCH_WEIGHTS))


def _modern(name: str) -> str:
    """Renames layer norms, which BERT's oldest files name like TensorFlow."""
    new = {"gamma": "weight", "beta": "bias"}
    return _LEGACY.sub(lambda m: f"{m[1]}.{new[m[2]]}", _WRAPPED.sub("", name))


def _untie(path: str, theirs: dict[str, Tensor], family: Family, is_bare: bool) -> None:
    """Removes second names of tied weights; raises `DataError` if the values differ."""
    table = family.table_rows()[0].theirs
    tied = {
        f"{family.decoder}.bias": family.mlm_bias,
        f"{family.decoder}.weight": table.removeprefix(family.stem)
        if is_bare
        else table,
    }
    for second, first in tied.items():
        if second not in theirs or second == first:
            continue
        tensor = theirs.pop(second)
        if first not in theirs:
            theirs[first] = dataclasses.replace(tensor, name=first)
        elif not np.array_equal(tensor.read(), theirs[first].read()):
            raise DataError(
                f"{path}: {second} differs from {first}; a masked LM whose output is "
                "not tied cannot be expressed"
            )


def _head(values: dict, theirs: dict[str, Tensor], family: Family) -> str | None:
    """Returns the head that the config or the tensors' names imply."""
    written = values.get("architectures")
    written = str(written[0]) if isinstance(written, list) and written else ""
    for any_family, row in itertools.product(FAMILIES.values(), all_rows()):
        if written and written == any_family.class_name(row.name):
            return row.name
    for name in _CLASSIFIERS:
        layers = family.for_head(name).layers
        needed = {layers["classifier"], family.head_layers.get(name, {}).get(_POOLER)}
        if all(f"{layer}.weight" in theirs for layer in needed - {None}):
            return name
    return None


def _labels(path: str, values: dict) -> list[str] | None:
    """Returns the names of the classes in order; None for LABEL_0, LABEL_1."""
    written = values.get("id2label") or {}
    pairs = written if isinstance(written, dict) else {"": None}
    labels = [pairs.get(str(i)) for i in range(len(pairs))]
    fits = None not in labels and len({*map(str, labels)}) == len(labels)
    need = f"{path}/config.json: id2label must give different names to 0, 1, ..., "
    require(fits, f"{need}received {written!r:.200}", error=DataError)
    labels = list(map(str, labels))
    return None if labels == [f"LABEL_{i}" for i in range(len(labels))] else labels


def name_table(config: AlbertConfig, head: str | None, is_bare: bool) -> list[Row]:
    """Returns the rows of a model; a bare one's names have no prefix.

    A family with groups needs the sharing `"all"`.
    """
    family = FAMILIES[config.family].for_head(head)
    layers = family.layers_of(config)
    rows = [
        *family.table_rows(),
        *rows_of(layers, _PARTS, _PARTS, transpose=True),
        Row("mlm_head/output_bias", family.mlm_bias),
    ]
    if is_bare:
        names = [row.theirs.removeprefix(family.stem) for row in rows]
        pairs = zip(rows, names, strict=True)
        rows = [dataclasses.replace(row, theirs=name) for row, name in pairs]
    return rows
