"""Reads and writes folders of sentence-transformers: a model with a `text_embedder`.

`modules.json` lists what a text passes through: a transformer in Hugging Face's format,
pooling, dense layers and a normalization. The modules and settings of every version are
read; those that are written have the names that all versions read.
"""

import os
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.converters import huggingface, safetensors_file, torch_file
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.errors import DataError, require
from albert_tf.heads import OPTION_RULES
from albert_tf.storage import files
from albert_tf.storage.folders import FolderWriter

NAME = "sentence_transformers"
_SETTINGS = "config_sentence_transformers.json"
_HEAD = "text_embedder"
# The transformer's settings; the library reads the first file that exists.
_TEXT_SETTINGS = [f"sentence_{k}_config.json" for k in ("bert", "roberta", "albert")]
# Our names, which are the new ones, and the endings of the old flags, `pooling_mode_…`.
_POOLINGS = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.Tanh": "tanh",
}
_KERNEL, _BIAS = "linear.weight", "linear.bias"
# The name, in `modules.json`, of a dense layer that is our pooler.
_POOLER = "pooler"
# The settings of each module that are read, or that change no vector.
_READ = {
    "Transformer": ("max_seq_length", "do_lower_case", "unpad_inputs"),
    "Pooling": ("embedding_dimension", "word_embedding_dimension", "pooling_mode"),
    "Dense": ("in_features", "out_features", "bias", "activation_function"),
    "Normalize": (),
}
_STATES = {"method": "forward", "method_output_name": "last_hidden_state"}
# The only values that others may have; what is not here must be empty.
_FIXED = {
    "Transformer.transformer_task": "feature-extraction",
    "Transformer.modality_config": {"text": _STATES},
    "Transformer.module_output_name": "token_embeddings",
    "Pooling.include_prompt": True,
    "Dense.module_input_name": "sentence_embedding",
    "Dense.module_output_name": "sentence_embedding",
    "Normalize.module_input_name": "sentence_embedding",
    "Normalize.module_output_name": "sentence_embedding",
}


class _Module(NamedTuple):
    """One entry of `modules.json`, with its folder and the settings there."""

    kind: str
    name: str
    folder: str
    values: dict[str, Any]


def matches(path: str, listed: set[str], config: dict | None) -> bool:
    """Returns whether a folder is in the library's format."""
    return huggingface.MODULES in listed


def read(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Opens a folder; `config` replaces the transformer's config.

    Raises `DataError` if a file is missing or damaged, or the model has a module or a
    setting that an `AlbertTextEmbedder` does not have.
    """
    where = files.join(path, _SETTINGS)
    settings = files.read_json(where) if files.exists(where) else {}
    kind = settings.get("model_type", "SentenceTransformer")
    expected = f"{where}: model_type must be SentenceTransformer; the format "
    expected += f"{huggingface.NAME} reads the transformer alone"
    _need(kind == "SentenceTransformer", expected, kind)
    text, pooling, *others = _modules(path)
    similarity = settings.get("similarity_fn_name") or "cosine"
    if similarity != "cosine" and (others or [text])[-1].kind != "Normalize":
        rule = "%s: similarity_fn_name is %s; search and metrics here use the cosine"
        logging.log_first_n(logging.WARNING, rule, 1, where, similarity)
    checkpoint = huggingface.read(text.folder, config).without_head()
    checkpoint.format, checkpoint.head = NAME, _HEAD
    checkpoint.max_seq_length = _length(text, checkpoint.config)
    if text.values.get("do_lower_case"):
        lowers = checkpoint.make_tokenizer().get_config().get("do_lower_case")
        expected = f"{text.folder}: do_lower_case needs a tokenizer that lower-cases"
        _need(lowers, expected)
    dense = [module for module in others if module.kind == "Dense"]
    options = checkpoint.head_options = {
        "pooling": _pooling(pooling),
        "normalize": dense != others,
        "prompts": _prompts(where, settings),
    }
    width, cut = _read_dense(checkpoint, dense), settings.get("truncate_dim")
    fits = cut is None or (type(cut) is int and cut > 0)
    _need(fits, f"{where}: truncate_dim must be a positive integer", cut)
    if cut and cut < width:
        expected = f"{where}: truncate_dim must be null after Normalize; `dimension` "
        _need(dense == others, f"{expected}cuts vectors before it", cut)
        options["dimension"] = cut
    return checkpoint


def _need(fits: Any, expected: str, *received: Any) -> None:
    require(fits, expected, *received, error=DataError)


def _modules(path: str) -> list[_Module]:
    """Returns a transformer, a pooling, dense layers, and perhaps a normalization."""
    where = files.join(path, huggingface.MODULES)
    try:
        listed = files.from_json(files.read_text(where))
        entries = [(str(m["type"]), str(m["name"]), str(m["path"])) for m in listed]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{where}: not a list of modules") from None
    modules = []
    for written, name, folder in entries:
        kind = written.rpartition(".")[2]
        fits = kind in _READ and written.startswith("sentence_transformers.")
        _need(fits, f"{where}: type must be one of {', '.join(_READ)}", written)
        inside = not os.path.isabs(folder) and ".." not in folder.split("/")
        _need(inside, f"{where}: path must be inside the folder", folder)
        place = files.join(path, folder) if folder else path
        names = _TEXT_SETTINGS if kind == "Transformer" else ["config.json"]
        paths = [files.join(place, name) for name in names]
        stored = next(filter(files.exists, paths), "")
        # An incomplete copy of a folder must not become the mean.
        missing = f"{place}/config.json: is missing; copy the whole folder"
        _need(stored or kind not in ("Pooling", "Dense"), missing)
        values = files.read_json(stored) if stored else {}
        for key, value in values.items():
            full = f"{kind}.{key}"
            is_read = key in _READ[kind] or key.startswith("pooling_mode_")
            fits = value == _FIXED[full] if full in _FIXED else is_read or not value
            _need(fits, f"{stored}: {key} has a value that cannot be expressed", value)
        modules.append(_Module(kind, name, place, values))
    kinds = [module.kind for module in modules]
    first = ["Transformer", "Pooling", *["Dense"] * kinds.count("Dense")]
    expected = f"{where}: expected Transformer, Pooling, Dense, Normalize in this order"
    _need(kinds in (first, [*first, "Normalize"]), expected, ", ".join(kinds))
    return modules


def _length(module: _Module, config: AlbertConfig) -> int:
    """Returns the number of tokens that the library keeps of a text."""
    where = files.join(module.folder, "tokenizer_config.json")
    stored = files.read_json(where) if files.exists(where) else {}
    longest = config.max_position_embeddings
    length = module.values.get("max_seq_length") or stored.get("model_max_length")
    # 1e30 means that there is no limit.
    fits = length is None or (isinstance(length, int | float) and length >= 1)
    _need(fits, f"{module.folder}: max_seq_length must be a positive integer", length)
    return int(min(length or longest, longest))


def _pooling(module: _Module) -> str:
    """Returns the only mode of pooling."""
    values, old = module.values, "pooling_mode_"
    flags = [k.removeprefix(old) for k in values if k.startswith(old) and values[k]]
    modes = values.get("pooling_mode") or flags or "mean"
    modes = [modes] if isinstance(modes, str) else modes
    chosen = [ours for ours, flag in _POOLINGS.items() if modes in ([ours], [flag])]
    expected = f"{module.folder}: pooling_mode must be one of {', '.join(_POOLINGS)}"
    _need(chosen, expected, modes)
    return chosen[0]


def _prompts(where: str, settings: dict[str, Any]) -> dict[str, str]:
    """Returns the text of each role, and of the default one under the empty name."""
    prompts = settings.get("prompts") or {}
    rule, fits = OPTION_RULES["prompts"]
    _need(fits(prompts), f"{where}: prompts must be {rule}", prompts)
    if (default := settings.get("default_prompt_name")) is None:
        return prompts
    expected = f"{where}: default_prompt_name must be the name of a prompt"
    _need(default in prompts, expected, default)
    return {**prompts, "": prompts[default]}


def _read_dense(checkpoint: Checkpoint, modules: list[_Module]) -> int:
    """Adds dense layers to a checkpoint and to its options; returns the last width."""
    options, width = checkpoint.head_options, checkpoint.config.hidden_size
    for module in modules:
        where, values = module.folder, module.values
        act = values.get("activation_function", "torch.nn.modules.activation.Tanh")
        expected = f"{where}: activation_function must be {' or '.join(_ACTIVATIONS)}"
        _need(act in _ACTIVATIONS, expected, act)
        path = files.join(where, huggingface.WEIGHTS)
        old = files.join(where, huggingface.TORCH_WEIGHTS)
        is_old = files.exists(old) and not files.exists(path)
        tensors = torch_file.load(old) if is_old else safetensors_file.read(path)
        shape = values.get("out_features"), width
        stored = {name: tensor.shape for name, tensor in tensors.items()}
        fits = stored in ({_KERNEL: shape}, {_KERNEL: shape, _BIAS: shape[:1]})
        _need(fits, f"{where}: expected {_KERNEL} of shape {shape}", stored)
        kernel = tensors[_KERNEL].map(shape[::-1], np.transpose)
        bias = tensors.get(_BIAS) or Tensor.of(_BIAS, np.zeros(shape[0], np.float32))
        width, act = shape[0], _ACTIVATIONS[act]
        is_last = module is modules[-1] and act == "linear" and not bias.read().any()
        if is_last and np.array_equal(kernel.read(), np.eye(*kernel.shape)):
            options["dimension"] = width
            continue
        layer = "projection"
        pooler = _POOLER, "cls", checkpoint.config.pooler_act
        if (module.name, options["pooling"], act) == pooler:
            options["pooling"], layer = "pooled", "backbone/pooler"
        else:
            expected = f"{where}: only one dense layer after pooling can be expressed"
            _need("projection_size" not in options, expected)
            options |= {"projection_size": width, "projection_act": act}
        checkpoint.tensors |= {f"{layer}/kernel": kernel, f"{layer}/bias": bias}
    return width


def write(checkpoint: Checkpoint, out: FolderWriter) -> None:
    """Writes the files of a folder.

    Raises `UsageError` if the library cannot express the model.
    """
    require(checkpoint.head == _HEAD, f"{NAME} stores a {_HEAD}", checkpoint.head)
    require(checkpoint.tokenizer is not None, f"{NAME} needs the model's tokenizer")
    huggingface.write(checkpoint.without_head(), out, needs_pooler=False)
    options, config = _options(checkpoint), checkpoint.config
    longest = checkpoint.max_seq_length or config.max_position_embeddings
    text = {"max_seq_length": longest, "do_lower_case": False}
    out.write_json(_TEXT_SETTINGS[0], text)
    mode = "cls" if options["pooling"] == "pooled" else options["pooling"]
    values = {f"pooling_mode_{old}": mode == new for new, old in _POOLINGS.items()}
    values["word_embedding_dimension"] = config.hidden_size
    modules = [("Transformer", "0", {}, {}), ("Pooling", "1", values, {})]
    names = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    for name, act, kernel, bias in _dense(checkpoint):
        require(act in names, f"{NAME} has no pooler with the activation {act}")
        inputs, outputs = kernel.shape
        values = {"in_features": inputs, "out_features": outputs, "bias": True}
        values["activation_function"] = names[act]
        theirs = {_KERNEL: kernel.map((outputs, inputs), np.transpose), _BIAS: bias}
        modules.append(("Dense", name, values, theirs))
    if options["normalize"]:
        modules.append(("Normalize", "normalize", {}, {}))
    listed = []
    for number, (kind, name, values, tensors) in enumerate(modules):
        folder = f"{number}_{kind}" if number else ""
        entry = {"idx": number, "name": name, "path": folder}
        listed.append({**entry, "type": f"sentence_transformers.models.{kind}"})
        if folder:
            out.write_json(f"{folder}/config.json", values)
        if tensors:
            with out.open(f"{folder}/{huggingface.WEIGHTS}") as f:
                safetensors_file.write(f, tensors, {"format": "pt"})
    out.write_json(huggingface.MODULES, listed)
    prompts = options["prompts"]
    settings = {"prompts": prompts, "truncate_dim": options["dimension"] or None}
    settings["default_prompt_name"] = "" if "" in prompts else None
    out.write_json(_SETTINGS, settings)


def _options(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the options of the head, those that are not stored included."""
    none = {"pooling": "mean", "normalize": True, "prompts": {}}
    return {**none, "projection_size": 0, "dimension": 0, **checkpoint.head_options}


def _dense(checkpoint: Checkpoint) -> list[tuple[str, str, Tensor, Tensor]]:
    """Returns the name, the activation and the weights of each layer after pooling."""
    # The last one cuts the vectors, which the library would do after the normalization.
    options, tensors = _options(checkpoint), checkpoint.tensors
    parts, layers = {}, []
    if options["pooling"] == "pooled":
        parts["backbone/pooler"] = checkpoint.config.pooler_act
    if options["projection_size"]:
        parts["projection"] = options["projection_act"]
    for part, act in parts.items():
        weights = (tensors[f"{part}/{name}"] for name in ("kernel", "bias"))
        layers.append((part.rpartition("/")[2], act, *weights))
    width = options["projection_size"] or checkpoint.config.hidden_size
    if 0 < (dimension := options["dimension"]) < width:
        cut = np.eye(width, dimension), np.zeros(dimension)
        layers.append(("dimension", "linear", *(Tensor.of("", array) for array in cut)))
    return layers
