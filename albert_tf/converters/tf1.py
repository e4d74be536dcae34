"""Reads and writes TensorFlow 1 checkpoints of google-research/albert and BERT.

It reads folders as released, a checkpoint's prefix, TF-Hub exports and other
SavedModels (only their `variables/`; the graph is never loaded), and writes what
`tf.train.Saver` writes.
"""

import contextlib
import dataclasses
import os
import re
import weakref
from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.converters import tf1_electra
from albert_tf.converters.checkpoint import Checkpoint, Tensor, as_float32
from albert_tf.converters.equivalents import as_groups, read_groups
from albert_tf.converters.table import (
    ALBERT_FIELDS,
    BERT_BLOCK,
    CONFIG_FIELDS,
    PROJECTION,
    Names,
    Row,
    read_checkpoint,
    rename,
    rows_of,
)
from albert_tf.converters.tokenizers import SPIECE, attach_tokenizer, write_file
from albert_tf.errors import DataError, MissingFileError, require
from albert_tf.storage import files, streams
from albert_tf.storage.folders import FolderWriter

NAME = "tf1"
PREFIX = "model.ckpt-best"
# The original uses the same two names for classifiers of texts, of tokens and of
# choices, stores no class names, and has flags for the number of starts and ends of an
# answer; this file stores them. A folder without it is read as the original wrote it.
_HEAD_FILE = "head.json"
_CLASSIFIERS = ("text_classifier", "token_classifier", "multiple_choice")
_CONFIGS = ("albert_config.json", "bert_config.json", "config.json")
_VOCABULARIES = ("30k-clean.model", "spiece.model", "vocab.txt")
_WRITTEN = {SPIECE: "30k-clean.model", "vocab.txt": "vocab.txt"}
# Constants of the original; the activation is written under its own name.
_NO_FIELDS = ("hidden_act", "layer_norm_eps", "classifier_dropout_prob")
# The activations of the original, by its own names.
_ACTIVATIONS = {"gelu_new": "gelu", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_KERNEL = ("/kernel", "/bias")
_NORM = ("/gamma", "/beta")
_HEADS = {
    "pretraining": "cls/seq_relationship/output_{}",
    "question_answering": "cls/squad/output_{}",
    None: "output_{}",
}
# The head of `create_v2_model`, whose layers have scopes.
_BEAM = {
    "start_head": "start_logits/dense",
    "end_head/dense_0": "end_logits/dense_0",
    "end_head/layer_norm": "end_logits/LayerNorm",
    "end_head/dense_1": "end_logits/dense_1",
    "answer_head/dense_0": "answer_class/dense_0",
}
# Optimizer slots, counters, and Keras's bookkeeping in exports.
_NO_WEIGHTS = re.compile(
    r"(^|/)(global_step|beta[12]_power|learning_rate|loss_scale|good_steps"
    r"|current_loss_scale|checkpoint_initializer\w*)(/|$)"
    r"|/(adam_[mv]|Adam(_\d+)?|adam[mv]|lamb_[mv]|Momentum|LAMB(_\d+)?"
    r"|LAMBOptimizer(_\d+)?|AdamWeightDecayOptimizer(_\d+)?)$"
    r"|^_CHECKPOINTABLE_OBJECT_GRAPH$|^save_counter"
)
# The scope of an unshared layer norm, without the group, and its number.
_OWN_NORM = re.compile(
    r"(?:.+/group_\d+(?:_\d+)?/)?(.+)/layer_normalization(?:_(\d+))?/(?:gamma|beta)"
)
_BERT = Names(
    tables="bert/embeddings/{}",
    scope="bert/encoder/layer_{group}",
    layers={
        "backbone/embeddings/layer_norm": "bert/embeddings/LayerNorm",
        PROJECTION: "bert/encoder/embedding_hidden_mapping_in",
        **BERT_BLOCK,
        "backbone/pooler": "bert/pooler/dense",
        "mlm_head/dense": "cls/predictions/transform/dense",
        "mlm_head/layer_norm": "cls/predictions/transform/LayerNorm",
    },
)
# The feed-forward's output is below `intermediate`, and layer norms have default scope
# names.
_ALBERT = dataclasses.replace(
    _BERT,
    scope="bert/encoder/transformer/group_{group}/inner_group_{inner}",
    layers={
        **_BERT.layers,
        "backbone/encoder/attention_{}/query": "{}/attention_1/self/query",
        "backbone/encoder/attention_{}/key": "{}/attention_1/self/key",
        "backbone/encoder/attention_{}/value": "{}/attention_1/self/value",
        "backbone/encoder/attention_{}/output": "{}/attention_1/output/dense",
        "backbone/encoder/attention_layer_norm_{}": "{}/LayerNorm",
        "backbone/encoder/ffn_{}/intermediate": "{}/ffn_1/intermediate/dense",
        "backbone/encoder/ffn_{}/output": "{}/ffn_1/intermediate/output/dense",
        "backbone/encoder/ffn_layer_norm_{}": "{}/LayerNorm_1",
    },
)
_FAMILIES = {"albert": _ALBERT, "bert": _BERT}


def is_prefix(path: str) -> bool:
    """Returns whether a path is a checkpoint's prefix, without `.index`."""
    return not files.exists(path) and files.exists(f"{path}.index")


def matches(path: str, names: set[str], config: dict | None) -> bool:
    """Returns whether a folder holds a checkpoint or a SavedModel."""
    return any(n.endswith(".index") for n in names) or (
        files.exists(files.join(path, "variables", "variables.index"))
    )


def read(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Opens a folder or a checkpoint's prefix; `config` replaces the config there.

    Raises `DataError` if there is not exactly one checkpoint, or it is damaged.
    """
    prefix = path if is_prefix(path) else _find_prefix(path)
    folder = os.path.dirname(prefix) if is_prefix(path) else path
    theirs = _without_scope(read_tensors(prefix))
    if tf1_electra.matches(theirs):
        args = (theirs, config, _NO_WEIGHTS)
        checkpoint = tf1_electra.read(NAME, path, folder, *args)
        for net in checkpoint.nets.values():
            attach_tokenizer(net, folder, _vocabularies(folder))
        return checkpoint
    config = config or _find_config(folder, theirs)
    if any("/inner_group_" in scope for scope in _own_norms(theirs)):
        config = config.replace(share_layer_norm=False)
    config = read_groups(config, "original")
    head = _head(theirs)
    rows = name_table(config, head)
    theirs = _numbered(theirs, [row.theirs for row in rows])
    checkpoint = read_checkpoint(NAME, path, config, head, rows, theirs, _NO_WEIGHTS)
    attach_tokenizer(checkpoint, folder, _vocabularies(folder))
    _read_head(checkpoint, folder)
    # RACE's score of a choice has the names of a classifier with one output.
    if checkpoint.head == "text_classifier" and checkpoint.num_labels == 1:
        checkpoint.also = ("multiple_choice",)
    return checkpoint


def write(checkpoint: Checkpoint, out: FolderWriter) -> None:
    """Writes a checkpoint, its config and its vocabulary.

    Raises `UsageError` if the original cannot express the model.
    """
    is_electra = checkpoint.config.family == tf1_electra.FAMILY
    _check_expressible(checkpoint)
    if is_electra:
        theirs = tf1_electra.tensors_of(checkpoint, NAME)
    else:
        rows = name_table(checkpoint.config, checkpoint.head)
        theirs = rename(rows, checkpoint.tensors, NAME)
    import tensorflow as tf

    tf.raw_ops.SaveV2(
        prefix=files.join(out.path, PREFIX),
        tensor_names=list(theirs),
        shape_and_slices=[""] * len(theirs),
        tensors=[
            tf.convert_to_tensor(np.ascontiguousarray(t.read()))
            for t in theirs.values()
        ],
    )
    (tf1_electra.write_configs if is_electra else _write_config)(checkpoint, out)
    if checkpoint.tokenizer is not None:
        tokenizer = checkpoint.make_tokenizer()
        write_file(tokenizer, _WRITTEN, NAME, out)
        if not tokenizer.do_lower_case:
            checkpoint.notes.append(f"{NAME}: its scripts need --do_lower_case=false")
        is_spiece = tokenizer.file_name == SPIECE
        if tokenizer.keep_accents and (is_spiece or tokenizer.do_lower_case):
            checkpoint.notes.append(f"{NAME}: its scripts always remove accents")
    if checkpoint.labels:
        out.write("labels.txt", "".join(f"{x}\n" for x in checkpoint.labels).encode())
    _write_head(checkpoint, out)
    out.write("checkpoint", f'model_checkpoint_path: "{PREFIX}"\n'.encode())


def _write_config(checkpoint: Checkpoint, out: FolderWriter) -> None:
    config, values = checkpoint.config, {}
    values["hidden_act"] = _ACTIVATIONS[config.hidden_act]
    has_groups = config.family == "albert"
    if config.sharing == "none" and has_groups:
        config = config.replace(num_hidden_groups=config.num_hidden_layers)
    for field in CONFIG_FIELDS:
        if field not in _NO_FIELDS and (has_groups or field not in ALBERT_FIELDS):
            values[field] = getattr(config, field)
    out.write_json(f"{config.family}_config.json", values)


def _check_expressible(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    acts = (
        tf1_electra.ACTIVATIONS if config.family == tf1_electra.FAMILY else _ACTIVATIONS
    )
    message = (
        f"{NAME} cannot express hidden_act={config.hidden_act!r}: the original "
        f"computes {', '.join(acts)}"
    )
    require(config.hidden_act in acts, message)
    needs_it = config.embedding_size != config.hidden_size
    message = f"{NAME} has no projection where E = D"
    require(needs_it or not config.has_embedding_projection, message)
    if checkpoint.head in _CLASSIFIERS[1:]:
        checkpoint.notes.append(
            f"{NAME}: only {_HEAD_FILE} records that the classifier is a "
            f"{checkpoint.head}"
        )
    for name in ("layer_norm_eps", "mlm_layer_norm_eps"):
        if getattr(config, name) not in (None, 1e-12):
            checkpoint.notes.append(
                f"{NAME} computes with a layer norm epsilon of 1e-12, not "
                f"{name}={getattr(config, name)}"
            )


def _find_prefix(folder: str) -> str:
    variables = files.join(folder, "variables", "variables")
    if files.exists(f"{variables}.index"):
        return variables
    names = [
        n[: -len(".index")] for n in files.list_folder(folder) if n.endswith(".index")
    ]
    if not names:
        raise DataError(f"{folder}: holds no checkpoint (no file ends in .index)")
    if len(names) > 1:
        best = [PREFIX] if PREFIX in names else []
        names = _latest(folder, names) or best or names
    if len(names) > 1:
        raise DataError(
            f"{folder}: holds {len(names)} checkpoints ({', '.join(names[:3])}…); name "
            "one by its path without .index"
        )
    return files.join(folder, names[0])


def _latest(folder: str, names: list[str]) -> list[str]:
    """Returns the checkpoint that the file `checkpoint` names, if it is listed."""
    where = files.join(folder, "checkpoint")
    text = files.read_text(where) if files.exists(where) else ""
    match = re.search(r'^model_checkpoint_path: "([^"\n]*)"', text, re.MULTILINE)
    latest = os.path.basename(match[1]) if match else None
    return [name for name in names if name == latest]


def read_tensors(prefix: str) -> dict[str, Tensor]:
    """Returns the tensors of any TensorFlow checkpoint by their names in it."""
    import tensorflow as tf

    errors = (tf.errors.OpError, ValueError, RuntimeError, IndexError)
    with contextlib.ExitStack() as stack:
        copy = prefix
        try:
            copy = stack.enter_context(streams.in_memory(prefix))
            reader = tf.compat.v1.train.NewCheckpointReader(copy)
            shapes = reader.get_variable_to_shape_map()
            # The reader notices a missing or truncated data file only when it reads it.
            _check_data(prefix)
        except OSError as e:
            raise DataError(f"{prefix}: cannot be read: {e.strerror}") from None
        except errors as e:
            line = _line(e).replace(copy, prefix)
            raise DataError(f"{prefix}: not a TensorFlow checkpoint: {line}") from None
        # The copy lasts as long as tensors can be read from it.
        weakref.finalize(reader, stack.pop_all().close)

    def read_now(name: str) -> np.ndarray:
        try:
            value = np.asarray(reader.get_tensor(name))
        except errors as e:
            line = _line(e).replace(copy, prefix)
            raise DataError(f"{prefix}: {name} cannot be read: {line}") from None
        return as_float32(value, f"{prefix}: {name}")

    return {
        name: Tensor(name, tuple(shape), lambda n=name: read_now(n))
        for name, shape in shapes.items()
    }


def _check_data(prefix: str) -> None:
    folder, base = os.path.split(prefix)
    data = re.compile(re.escape(base) + r"\.data-\d{5}-of-(\d{5})$")
    data_files = [m for m in map(data.match, files.list_folder(folder or ".")) if m]
    if not data_files or len(data_files) != int(data_files[0][1]):
        raise ValueError(f"found {len(data_files)} of its data files")


def _line(error: Exception) -> str:
    return str(getattr(error, "message", error)).split("\n")[0][:200]


def _find_config(folder: str, theirs: dict[str, Tensor]) -> AlbertConfig:
    for place in (folder, files.join(folder, "assets")):
        for name in _CONFIGS:
            if files.exists(files.join(place, name)):
                return AlbertConfig.from_json(files.join(place, name))
    # TF-Hub modules have no config; the shapes show all sizes but heads and depth.
    shapes = {name: tensor.shape for name, tensor in theirs.items()}
    block = "bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/dense"
    with contextlib.suppress(KeyError, ValueError):
        V, E = shapes["bert/embeddings/word_embeddings"]
        D, F = shapes[f"{block}/kernel"]
        for name, preset in PRESETS.items():
            sizes = (preset["hidden_size"], preset["intermediate_size"])
            if sizes == (D, F) and name.startswith("albert") and name.endswith("v2"):
                return AlbertConfig.from_preset(name, vocab_size=V, embedding_size=E)
    raise MissingFileError(
        f"{folder}: no albert_config.json, and the shapes are not those of a released "
        "model; a config is required"
    )


def _vocabularies(folder: str) -> list[str]:
    """Returns the vocabularies of a folder, or else of its subfolder `assets`."""
    for place in ("", "assets"):
        where = files.join(folder, place) or "."
        listed = files.list_folder(where) if files.is_folder(where) else ()
        vocabularies = [n for n in listed if n.endswith(".model") or n == "vocab.txt"]
        if vocabularies:
            vocabularies.sort(key=lambda name: name not in _VOCABULARIES)
            return [os.path.join(place, name) for name in vocabularies]
    return []


def _head(theirs: dict[str, Tensor]) -> str | None:
    if all(row.theirs in theirs for row in _beam_rows()):
        return "beam_question_answering"
    if "cls/squad/output_weights" in theirs:
        return "question_answering"
    if "output_weights" in theirs:
        return "text_classifier"
    return "pretraining" if "cls/seq_relationship/output_weights" in theirs else None


def _write_head(checkpoint: Checkpoint, out: FolderWriter) -> None:
    """Writes properties of a head that the tensors' names do not show, if any."""
    values = {
        "labels": checkpoint.labels,
        "problem_type": checkpoint.problem_type,
        "max_seq_length": checkpoint.max_seq_length,
        **checkpoint.head_options,
    }
    values = {name: value for name, value in values.items() if value is not None}
    if values or checkpoint.head in _CLASSIFIERS[1:]:
        out.write_json(_HEAD_FILE, {"head": checkpoint.head, **values})


def _read_head(checkpoint: Checkpoint, folder: str) -> None:
    """Adds the values of the head's file, if there is one and it fits the tensors."""
    path = files.join(folder, _HEAD_FILE)
    if not files.exists(path):
        return
    values = files.read_json(path)
    shown = checkpoint.head
    # An embedder without projection has the encoder's weights alone.
    fitting = (None, "text_embedder") if shown is None else (shown,)
    fitting = _CLASSIFIERS if shown in _CLASSIFIERS else fitting
    expected = f"one of {', '.join(map(str, fitting))} by the tensors' names"
    demand, name = f"{path}: head must be {expected}", values.get("head")
    require(name in fitting, demand, name, error=DataError)
    checkpoint.set_head(values, path)


def _with_own_norms(layers: dict[str, str], config: AlbertConfig) -> dict[str, str]:
    """Returns the names with unshared layer norms, which Keras numbers."""
    layers = {k: v for k, v in layers.items() if "_norm_" not in k}
    entered = dict.fromkeys(config.group_numbers(), -1)
    for number, row in enumerate(config.layer_table()):
        layer, inner = divmod(number, config.inner_group_num)
        group = config.group_numbers()[row.attention // config.inner_group_num]
        # TensorFlow numbers a name scope that is entered again.
        entered[group] += inner == 0
        suffix = f"_{entered[group]}" if entered[group] else ""
        scope = (
            f"bert/encoder/transformer/group_{group}{suffix}/layer_{layer}/"
            f"inner_group_{inner}/layer_normalization"
        )
        for part, which in (("attention", 2 * number + 1), ("ffn", 2 * number + 2)):
            layers[f"backbone/encoder/{part}_layer_norm_{number}"] = f"{scope}_{which}"
    last = f"layer_normalization_{2 * len(config.layer_table()) + 1}"
    for name in ("backbone/pooler", "mlm_head/dense", "mlm_head/layer_norm"):
        layers[name] = layers.pop(name).replace("LayerNorm", last)  # above the blocks
    layers["backbone/embeddings/layer_norm"] = "bert/embeddings/layer_normalization"
    return layers


def name_table(config: AlbertConfig, head: str | None = "pretraining") -> list[Row]:
    """Returns the rows of the encoder and its heads, in the original's names.

    The masked LM's weights are in every table. Classifiers of texts, tokens or choices
    have the same names.
    """
    expected = f"{NAME} names only the families {', '.join(_FAMILIES)} and electra"
    require(config.family in _FAMILIES, expected, config.family)
    names, has_shared_norms = _FAMILIES[config.family], config.share_layer_norm
    if config.family == "albert":
        config = as_groups(config, "tf1", "original")
        config = config.replace(share_layer_norm=has_shared_norms)
    layers = names.layers_of(config)
    if not has_shared_norms:
        layers = _with_own_norms(layers, config)
    if not config.has_embedding_projection:
        del layers[PROJECTION]
    rows = [*names.table_rows(), *rows_of(layers, _KERNEL, _NORM)]
    rows.append(Row("mlm_head/output_bias", "cls/predictions/output_bias"))
    if head == "beam_question_answering":
        return rows + _beam_rows()
    ours = "sop_head" if head == "pretraining" else "classifier"
    theirs = _HEADS.get(head, _HEADS[None])
    rows.append(Row(f"{ours}/kernel", theirs.format("weights"), transpose=True))
    rows.append(Row(f"{ours}/bias", theirs.format("bias")))
    return rows


def _beam_rows() -> list[Row]:
    """Returns the rows of the SQuAD 2.0 head."""
    # The last layer has no bias.
    kernel = Row("answer_head/dense_1/kernel", "answer_class/dense_1/kernel")
    return [*rows_of(_BEAM, _KERNEL, _NORM), kernel]


def _without_scope(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Strips the scope before `bert/` from the names in a checkpoint."""
    # TF-Hub modules loaded into a model have the scope module/, and TensorFlow 2's
    # converters of TensorFlow 1 models keep such scopes too.
    inside = next((name for name in stored if "/bert/embeddings/" in name), "")
    scope = inside.partition("bert/embeddings/")[0]
    return {name.removeprefix(scope): tensor for name, tensor in stored.items()}


def _own_norms(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns the unshared layer norms by their scope, in Keras's order."""
    by_scope: dict[str, set[tuple[int, str]]] = {}
    for name in names:
        if norm := _OWN_NORM.fullmatch(name):
            numbered = (int(norm[2] or 0), name.rpartition("/")[0])
            by_scope.setdefault(norm[1], set()).add(numbered)
    return {scope: [norm for _, norm in sorted(by_scope[scope])] for scope in by_scope}


def _numbered(stored: Mapping[str, Tensor], standard: list[str]) -> dict[str, Tensor]:
    """Gives unshared layer norms their standard names."""
    # Keras numbered them over the whole graph, including everything built before;
    # within a layer the lower number is the attention's. See google-research/albert
    # issue 241.
    new, norms = {}, _own_norms(stored)
    for scope, names in _own_norms(standard).items():
        if len(names) == len(norms.get(scope, ())):
            new |= zip(norms[scope], names, strict=True)
    parts = {name: name.rpartition("/") for name in stored}
    return {
        f"{new.get(norm, norm)}{slash}{weight}": stored[name]
        for name, (norm, slash, weight) in parts.items()
    }
