"""Finds, writes and chooses the tokenizer of a checkpoint."""

import json
import os
from collections.abc import Iterable, Mapping

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.errors import UsageError, require
from albert_tf.storage import files
from albert_tf.storage.folders import FolderWriter
from albert_tf.text import load, tokenizer_json
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.wordpiece import WordPieceTokenizer

SPIECE = AlbertTokenizer.file_name
# Options with flags in the commands.
_FLAGS = ("do_lower_case", "keep_accents")


def attach_tokenizer(
    checkpoint: Checkpoint,
    folder: str,
    names: Iterable[str] = load.IN_FOLDER,
    options: dict[str, bool] | None = None,
) -> None:
    """Lets a checkpoint build the tokenizer of a folder, if it has a file of `names`.

    The options are by default the ones stored in the folder.
    """
    options = load.stored_options(folder) if options is None else options
    options = {name: value for name, value in options.items() if value is not None}
    checkpoint.tokenizer_options = options
    if path := load.find_file(folder, names):
        checkpoint.tokenizer = lambda: load.read_tokenizer(path, options)


def write_file(
    tokenizer: Tokenizer, names: Mapping[str, str], format: str, out: FolderWriter
) -> None:
    """Writes a tokenizer's file under the format's own name for it, and its options.

    `names` maps a class's `file_name` to the format's name. Raises `UsageError` if the
    format cannot store this kind of tokenizer.
    """
    if tokenizer.file_name not in names:
        raise UsageError(
            f"{format} stores tokenizers with a file {' or '.join(names)} only, "
            f"received {type(tokenizer).__name__}"
        )
    # Readers of the format would take the text of added tokens for words.
    added = [token["content"] for token in tokenizer.added_tokens]
    expected = f"{format} cannot store added tokens; write albert_tf's format"
    require(not added, expected, *added[:1])
    out.write(names[tokenizer.file_name], tokenizer.model)
    out.write_json(load.OPTION_FILE, load.library_options(tokenizer))


def write_huggingface(
    tokenizer: Tokenizer, config: AlbertConfig, out: FolderWriter
) -> None:
    """Writes the tokenizer's file, `tokenizer.json` and `tokenizer_config.json`."""
    data = tokenizer.model
    if isinstance(tokenizer, ByteBPETokenizer):
        content = json.loads(data)
        steps = content.get("post_processor") or {}
        has_segments = tokenizer.pair_separators == 1
        if has_segments or steps.get("type") != "RobertaProcessing":
            content["post_processor"] = tokenizer_json.template(tokenizer)
            data = files.to_json(content).encode()
    out.write(tokenizer.file_name, data)
    if isinstance(tokenizer, AlbertTokenizer):
        out.write_json(ByteBPETokenizer.file_name, tokenizer_json.to_json(tokenizer))
    elif isinstance(tokenizer, WordPieceTokenizer):
        out.write_json(ByteBPETokenizer.file_name, tokenizer.to_json())
    write_library_config(tokenizer, config, out)


def write_library_config(
    tokenizer: Tokenizer, config: AlbertConfig, out: FolderWriter
) -> None:
    """Writes `tokenizer_config.json` for the tokenizer's files in a folder.

    No class is named if all of transformers' classes would give other ids: without a
    `tokenizer.json` they lack the digit-comma rule and a second separator.
    """
    has_segments = tokenizer.pair_separators == 1
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    kind = {}
    # Their class has one separator whatever the file says.
    if isinstance(tokenizer, WordPieceTokenizer) and has_segments:
        kind["tokenizer_class"] = "BertTokenizer"
    elif os.path.exists(os.path.join(out.path, ByteBPETokenizer.file_name)):
        kind["tokenizer_class"] = "PreTrainedTokenizerFast"
    names = ("pad", "unk", "cls", "sep", "mask")
    ids = {name: getattr(tokenizer, f"{name}_id") for name in names}
    ids |= {"bos": tokenizer.cls_id, "eos": tokenizer.sep_id}
    out.write_json(
        load.OPTION_FILE,
        {
            **kind,
            "model_input_names": inputs if has_segments else inputs[::2],
            "model_max_length": config.max_position_embeddings,
            "clean_up_tokenization_spaces": False,
            **{f"{name}_token": tokenizer.id_to_token(i) for name, i in ids.items()},
            **load.library_options(tokenizer),
        },
    )


def choose_tokenizer(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer | str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> Tokenizer:
    """Returns the tokenizer to use with a checkpoint's weights, by default its own.

    A path is loaded with the options of the checkpoint, or with the arguments if it
    lacks them. Raises `UsageError` if the user's tokenizer or an option contradicts the
    checkpoint, and `DataError` if there is no tokenizer, or a file is not a tokenizer.
    """
    stored = checkpoint.tokenizer_options
    recorded = {name: stored[name] for name in load.OPTIONS if name in stored}
    values = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    options = {name: value for name, value in values.items() if value is not None}
    load.check_options(options, recorded, checkpoint.path)
    stored.update(options)  # its own tokenizer is built with them
    if tokenizer is None:
        chosen = checkpoint.make_tokenizer()
    elif isinstance(tokenizer, Tokenizer):
        chosen = tokenizer
    else:
        chosen = load.load_tokenizer(tokenizer, **{**recorded, **options})
    if tokenizer is not None and checkpoint.tokenizer is not None:
        _check_same(chosen, checkpoint)
    config = chosen.get_config()
    if chosen is tokenizer:
        own_options = {name: config[name] for name in _FLAGS if name in config}
        load.check_options(own_options, recorded, checkpoint.path)
    if any(config.get(name, value) != value for name, value in options.items()):
        chosen = chosen.with_options(**options)
    load.warn_if_small(chosen, checkpoint.config.vocab_size)
    checkpoint.config.check_pad_id(chosen.pad_id, checkpoint.path, UsageError)
    return chosen.for_segments(checkpoint.config.num_segments)


def same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    """Returns whether the ids of two tokenizers mean the same tokens."""
    return one.sha256 == other.sha256 or one.vocabulary == other.vocabulary


def _check_same(tokenizer: Tokenizer, checkpoint: Checkpoint) -> None:
    """Raises `UsageError` if a tokenizer's ids mean other tokens than expected."""
    # Content decides: a file that a format had to rewrite has another digest, but the
    # same tokens at the same ids.
    own = checkpoint.make_tokenizer()
    if same_tokens(tokenizer, own):
        return
    raise UsageError(
        f"spm_model_file: is not the tokenizer of {checkpoint.path}, whose weights "
        f"belong to the vocabulary of sha256 {own.sha256[:12]} ({own.vocab_size:,} "
        f"tokens), received {tokenizer.sha256[:12]} ({tokenizer.vocab_size:,}); leave "
        "it out to use the checkpoint's own"
    )
