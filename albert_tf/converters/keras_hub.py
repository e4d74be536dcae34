"""Reads KerasHub presets without KerasHub, and writes them with it.

Reading does not use the library, because it builds any class that the JSON names, loads
the whole model at once, and does not report left-over tensors.

KerasHub differs in ways that a config cannot undo: its masked LM head has a layer norm
epsilon of 1e-5 (kept as `mlm_layer_norm_eps` when a preset is read), its activation is
always the tanh approximation, and its tokenizer does not normalize text, so the
written vocabulary does it: the rules of `text.normalization` before SentencePiece
become part of the model's own character map, and the pieces that the digit-comma rule
splits again are marked as unused. A character map sees no context, so final sigma
becomes σ, not ς. A piece such as `,000` may win where our rule splits `2,` afterwards.
All other text has the same ids. The unchanged vocabulary is stored next to it for this
package.

Keras names a layer's group in an HDF5 file by its class and a count (`dense_1`), not
by its own name. Files of an earlier Keras have other private names (`_query_dense`) and
another top group; `_standard_path` accepts both.
"""

import contextlib
import functools
import io
import re
import sys
import tempfile
import unicodedata
from collections.abc import Iterator

import h5py
import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint, Tensor, as_float32
from albert_tf.converters.equivalents import (
    as_groups,
    fold_projection,
    unfold_projection,
)
from albert_tf.converters.table import TABLES, Row, read_checkpoint, rename, rows_of
from albert_tf.converters.tokenizers import SPIECE, attach_tokenizer, write_file
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import HEADS, find
from albert_tf.storage import files
from albert_tf.storage.folders import FolderWriter
from albert_tf.text import normalization
from albert_tf.text.sentencepiece import AlbertTokenizer

NAME = "keras_hub"
WEIGHTS = "model.weights.h5"
TASK_WEIGHTS = "task.weights.h5"
VOCABULARY = "assets/tokenizer/vocabulary.spm"
MLM_EPSILON = 1e-5
# Registered names of the tasks, and our names of their heads.
_HEADS = {
    f"keras_hub>{row.keras_hub_class}": name
    for name, row in HEADS.items()
    if row.keras_hub_class
}
_FIELDS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_groups": "num_hidden_groups",
    "num_inner_repetitions": "inner_group_num",
    "embedding_dim": "embedding_size",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
# Prefix of the paths in `task.weights.h5`.
_TASK = "task:"
# Within the group of a layer, the kernel or gamma is first.
_VARS = ("/vars/0", "/vars/1")
_NO_WEIGHTS = re.compile(r"(^|/|:)(optimizer|preprocessor|seed_generator)/")
_EARLIER_TOP = "_layer_checkpoint_dependencies"
_BLOCK = {
    "attention_layer_norm_{}": "_self_attention_layer_norm",
    "ffn_{}/intermediate": "_feedforward_intermediate_dense",
    "ffn_{}/output": "_feedforward_output_dense",
    "ffn_layer_norm_{}": "_feedforward_layer_norm",
}


def matches(path: str, listed: set[str], config: dict | None) -> bool:
    """Returns whether a folder is a preset of KerasHub."""
    return config is not None and "registered_name" in config


def read(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Opens a preset; `config` replaces the config in it.

    Raises `DataError` if a file is missing, damaged, or of another model.
    """
    preset = files.read_json(files.join(path, "config.json"))
    if preset.get("registered_name") != "keras_hub>AlbertBackbone":
        raise DataError(
            f"{path}: expected a preset of keras_hub>AlbertBackbone, received "
            f"{preset.get('registered_name')!r}"
        )
    config = config or _read_config(path, preset)
    config = config.replace(embedding_projection="always")
    task = {}
    if files.exists(files.join(path, "task.json")):
        task = files.read_json(files.join(path, "task.json"))
    head = _HEADS.get(task.get("registered_name"))
    rows = _name_table(config, head)
    stored_names = {_standard_path(row.theirs): row.theirs for row in rows}
    with contextlib.ExitStack() as opened:
        theirs = _tensors(path, WEIGHTS, "", opened)
        if head and files.exists(files.join(path, TASK_WEIGHTS)):
            theirs.update(_tensors(path, TASK_WEIGHTS, _TASK, opened))
        resources = opened.pop_all()
    theirs = {stored_names.get(_standard_path(k), k): t for k, t in theirs.items()}
    values = task.get("config", {}) if isinstance(task.get("config"), dict) else {}
    if head == "text_classifier" and isinstance(values.get("dropout"), float):
        config = config.replace(classifier_dropout_prob=values["dropout"])
    checkpoint = read_checkpoint(NAME, path, config, head, rows, theirs, _NO_WEIGHTS)
    checkpoint.resources = resources
    attach_tokenizer(checkpoint, path, (SPIECE, VOCABULARY))
    fold_projection(checkpoint)
    if values.get("activation") not in (None, "linear"):
        checkpoint.notes.append(
            f"{NAME}'s classifier applies {values['activation']}; this model "
            "returns logits"
        )
    return checkpoint


def write(checkpoint: Checkpoint, out: FolderWriter) -> None:
    """Writes the files of a preset.

    Raises `UsageError` if KerasHub's classes cannot express the model.
    """
    config, head = _expressible(checkpoint), checkpoint.head
    ours = unfold_projection(config, checkpoint.tensors)
    if head == "masked_lm" and not checkpoint.has_pooler:
        checkpoint.notes.append(f"{NAME}: the unused pooler is written as zeros")
        size = config.hidden_size
        for name, shape in (("kernel", (size, size)), ("bias", (size,))):
            full = f"backbone/pooler/{name}"
            ours[full] = Tensor.of(full, np.zeros(shape, np.float32))
    theirs = rename(_name_table(config, head), ours, NAME)
    import keras_hub

    tokenizer, models = None, keras_hub.models
    if checkpoint.tokenizer is not None:
        own = checkpoint.make_tokenizer()
        write_file(own, {SPIECE: SPIECE}, NAME, out)
        try:
            tokenizer = models.AlbertTokenizer(folded_model(own))
        except ValueError as e:
            raise UsageError(f"{NAME}: {e}") from None
        tokenizer.save_to_preset(out.path)
    values = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    model = models.AlbertBackbone(**values, dtype="float32")
    if head is not None:
        kind, options = find(head).keras_hub_class, {}
        if head == "text_classifier":
            options["num_classes"] = checkpoint.num_labels
            options["dropout"] = config.classifier_dropout_prob
        if tokenizer is not None:
            options["preprocessor"] = getattr(models, f"{kind}Preprocessor")(
                tokenizer, sequence_length=config.max_position_embeddings
            )
        model = getattr(models, kind)(model, **options)
    model.save_to_preset(out.path)
    # The file has a dataset for each weight, under the names of `_name_table`.
    for stem, name in (("", WEIGHTS), (_TASK, TASK_WEIGHTS)):
        own = {k: t for k, t in theirs.items() if k.startswith(_TASK) == bool(stem)}
        if own:
            with h5py.File(files.join(out.path, name), "r+") as f:
                for path, tensor in own.items():
                    f[path.removeprefix(stem)][...] = tensor.read()


def _expressible(checkpoint: Checkpoint) -> AlbertConfig:
    head = checkpoint.head
    message = (
        f"{NAME} has no model with a head like {head}; it has "
        f"{', '.join(_HEADS.values())} and the bare encoder"
    )
    require(head in (None, *_HEADS.values()), message)
    family = checkpoint.config.family
    require(family in ("albert", "bert"), f"{NAME} has no family like this", family)
    config = as_groups(checkpoint.config, NAME, "integer")
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    expected = f"{NAME}: num_hidden_layers must be a multiple of num_hidden_groups"
    require(layers % groups == 0, expected, layers, groups)
    expected = f"{NAME} computes gelu_new only: hidden_act"
    require(config.hidden_act == "gelu_new", expected, config.hidden_act)
    message = f"{NAME} cannot express share_layer_norm=False"
    require(config.share_layer_norm, message)
    notes = checkpoint.notes
    if config.layer_norm_eps != 1e-12:
        notes.append(f"{NAME} computes with epsilon 1e-12, not {config.layer_norm_eps}")
    mlm_eps = config.mlm_layer_norm_eps or config.layer_norm_eps
    if head == "masked_lm" and mlm_eps != MLM_EPSILON:
        notes.append(
            f"{NAME} uses epsilon {MLM_EPSILON} in the masked LM head, not {mlm_eps}: "
            "logits differ by about 2e-5"
        )
    if config.hidden_dropout_prob != config.attention_probs_dropout_prob:
        notes.append(f"{NAME} has one dropout rate; it becomes hidden_dropout_prob")
    return config


def _read_config(path: str, preset: dict) -> AlbertConfig:
    try:
        values = preset["config"]
        fields = {field: values[kh] for kh, field in _FIELDS.items()}
        return AlbertConfig(
            **fields,
            attention_probs_dropout_prob=values["dropout"],
            hidden_act="gelu_new",
            mlm_layer_norm_eps=MLM_EPSILON,
        )
    except (KeyError, TypeError) as e:
        raise DataError(f"{path}/config.json: no {e}") from None
    except ValueError as e:
        raise DataError(f"{path}/config.json: {e}") from None


def _tensors(
    path: str, name: str, stem: str, resources: contextlib.ExitStack
) -> dict[str, Tensor]:
    """Returns the datasets of an HDF5 file; links, which may lead out, are rejected."""
    where = files.join(path, name)
    datasets: dict[str, h5py.Dataset] = {}
    try:
        source = where
        if files.is_remote(where):
            source = io.BytesIO(files.read_bytes(where))
        groups = [("", resources.enter_context(h5py.File(source, "r")))]
        while groups:
            prefix, group = groups.pop()
            for key in group:
                if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                    reason = "is a link, which is not allowed"
                    raise DataError(f"{where}: {stem}{prefix}{key} {reason}")
                item = group[key]
                if isinstance(item, h5py.Dataset):
                    datasets[f"{prefix}{key}"] = item
                elif prefix.count("/") > 16:
                    raise DataError(f"{where}: groups are nested too deeply")
                elif isinstance(item, h5py.Group):
                    groups.append((f"{prefix}{key}/", item))
    # h5py passes on several kinds of error from the HDF5 library.
    except (OSError, RuntimeError, KeyError, ValueError) as e:
        if isinstance(e, DataError):
            raise
        raise DataError(f"{where}: not a usable HDF5 file: {e}") from None
    tensors = {}
    for key, item in datasets.items():
        if item.external or item.is_virtual:
            raise DataError(f"{where}: {stem}{key} lies in another file")
        if item.dtype.kind not in "fiu":
            raise DataError(f"{where}: {stem}{key} is not numeric")
        name, read = f"{stem}{key}", functools.partial(_read, item, where)
        tensors[name] = Tensor(name, item.shape, read)
    return tensors


def _read(item: h5py.Dataset, where: str) -> np.ndarray:
    try:
        return as_float32(item[()], f"{where}: {item.name}")
    except (OSError, RuntimeError) as e:
        raise DataError(f"{where}: {item.name} cannot be read: {e}") from None


def _name_table(config: AlbertConfig, head: str | None) -> list[Row]:
    """Returns the rows of a backbone of sharing `"all"` and of KerasHub's heads."""
    rows = [
        Row(f"backbone/embeddings/{ours}", f"layers/{theirs}/vars/0")
        for ours, theirs in zip(
            TABLES,
            ("reversible_embedding", "position_embedding", "embedding"),
            strict=True,
        )
    ]
    layers = {
        "backbone/embeddings/layer_norm": "layers/layer_normalization",
        "backbone/encoder/embedding_projection": "layers/dense",
        "backbone/pooler": "layers/dense_1",
    }
    for block in range(config.num_hidden_groups * config.inner_group_num):
        stem = "layers/transformer_encoder" + (f"_{block}" if block else "")
        for ours, theirs in _BLOCK.items():
            layers[f"backbone/encoder/{ours.format(block)}"] = f"{stem}/{theirs}"
        rows += _attention(config, f"backbone/encoder/attention_{block}", stem)
    if head == "masked_lm":
        stem = f"{_TASK}layers/masked_lm_head"
        layers["mlm_head/dense"] = f"{stem}/_intermediate_dense"
        layers["mlm_head/layer_norm"] = f"{stem}/_intermediate_layer_norm"
        rows.append(Row("mlm_head/output_bias", f"{stem}/vars/0"))
    elif head == "text_classifier":
        layers["classifier"] = f"{_TASK}layers/dense"
    return rows + rows_of(layers, _VARS, _VARS)


def _standard_path(path: str) -> str:
    """Returns a path without the parts that differ between versions of Keras."""
    top, _, rest = path.partition("/")
    top = top.replace(_EARLIER_TOP, "layers")
    return "/".join(part.lstrip("_") for part in (top, *rest.split("/")))


def _attention(config: AlbertConfig, ours: str, stem: str) -> list[Row]:
    D, N, H = config.hidden_size, config.num_attention_heads, config.head_size
    rows = []
    for part in ("query", "key", "value", "output"):
        theirs = f"{stem}/_self_attention_layer/{part}_dense/vars"
        kernel, bias = ((D, N, H), (N, H)) if part != "output" else ((N, H, D), (D,))
        kernel, bias = ((D, D), kernel), ((D,), bias)
        rows.append(Row(f"{ours}/{part}/kernel", f"{theirs}/0", shapes=kernel))
        rows.append(Row(f"{ours}/{part}/bias", f"{theirs}/1", shapes=bias))
    return rows


def folded_model(tokenizer: AlbertTokenizer) -> bytes:
    """Returns a SentencePiece model that normalizes text by itself.

    The options of the tokenizer determine the normalization.
    """
    from sentencepiece import sentencepiece_model_pb2

    model = tokenizer.model
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    spec = proto.normalizer_spec
    spec.precompiled_charsmap = _folded_map(
        model, tokenizer.do_lower_case, tokenizer.keep_accents
    )
    spec.name = "albert_tf"
    for i in tokenizer.replacements:
        proto.pieces[i].type = proto.pieces[i].UNUSED
    return proto.SerializeToString()


@functools.lru_cache(maxsize=4)
def _folded_map(model: bytes, do_lower_case: bool, keep_accents: bool) -> bytes:
    """Returns the map of characters, kept because making it takes seconds."""
    from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2

    own = SentencePieceNormalizer(model_proto=model)
    trained = _train(_rules(own, do_lower_case, keep_accents))
    built = sentencepiece_model_pb2.ModelProto.FromString(trained)
    return built.normalizer_spec.precompiled_charsmap


def _train(rules: list[tuple[str, str]]) -> bytes:
    """Trains a model on one word, to obtain its character map."""
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.writelines(f"{_hex(old)}\t{_hex(new)}\n" for old, new in rules)
        file.flush()
        SentencePieceTrainer.train(
            sentence_iterator=iter(["a"]),
            model_writer=model,
            model_type="char",
            vocab_size=10,
            hard_vocab_limit=False,
            normalization_rule_tsv=file.name,
            minloglevel=2,
        )
    return model.getvalue()


def _rules(own, do_lower_case: bool, keep_accents: bool) -> list[tuple[str, str]]:
    """Returns replacement rules: our normalization, then the model's own map."""
    chars, sequences = _characters()
    sources = chars + sequences
    folded = [_fold(text, do_lower_case, keep_accents) for text in sources]
    result = dict(zip(sources, own.normalize(folded), strict=True))
    rules = [(char, result[char]) for char in chars if result[char] != char]
    for text in sequences:
        # Without its own rule, its characters are replaced one by one.
        if result[text] != "".join(result[char] for char in text):
            rules.append((text, result[text]))
    return rules


@functools.cache
def _characters() -> tuple[list[str], list[str]]:
    """Returns the characters of texts, and the spellings of those that compose."""
    chars = [c for c in map(chr, range(1, sys.maxunicode + 1)) if _is_text(c)]
    return chars, list(dict.fromkeys(_decomposed()))


def _fold(text: str, do_lower_case: bool, keep_accents: bool) -> str:
    if text.isspace():
        return " "
    if not keep_accents:
        text = unicodedata.normalize("NFKD", text)
        text = normalization.combining_pattern().sub("", text)
    return text.lower() if do_lower_case else text


def _is_text(char: str) -> bool:
    return unicodedata.category(char) not in ("Cn", "Co", "Cs") or char.isspace()


def _decomposed() -> Iterator[str]:
    for char in map(chr, range(0x80, 0x30000)):
        if not 0xD800 <= ord(char) < 0xE000:
            full = unicodedata.normalize("NFD", char)
            if len(full) > 1:
                yield full
                # All but the last character composed: LV and T of a Hangul syllable.
                first = unicodedata.normalize("NFC", full[:-1])
                if len(first) == 1:
                    yield first + full[-1]


def _hex(text: str) -> str:
    return " ".join(f"{ord(char):X}" for char in text)
