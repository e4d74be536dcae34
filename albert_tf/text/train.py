"""Trains a tokenizer with ALBERT's settings, reproducible to the byte.

The settings come from the trainer specification inside the released `spiece.model`.
"""

import contextlib
import functools
import io
import os
import pathlib
import pickle
import random
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

from absl import logging

from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import files
from albert_tf.text.load import option_file
from albert_tf.text.normalization import normalize_text, to_unicode

SPECIAL_TOKENS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
MODEL_TYPES = ("unigram", "byte_bpe", "wordpiece")
# Texts of at least this length are trained in a separate process.
_CHILD_CHARACTERS = 2_000_000
_MAX_BYTES = 4000  # SentencePiece drops sentences above 4192 bytes
# Characters that SentencePiece reserves: it drops sentences that contain them.
_RESERVED = str.maketrans(dict.fromkeys("\0\u2581\u2585", " "))
# The result depends on the number of threads, so it must be the same everywhere.
_NUM_THREADS = 4
_BYTES = 256


def train_tokenizer(
    sentences: Iterable[str],
    output_model: str | os.PathLike | None = None,
    *,
    model_type: str = "unigram",
    vocab_size: int = 30000,
    do_lower_case: bool = True,
    keep_accents: bool = False,
    character_coverage: float = 0.99995,
    input_sentence_size: int = 10_000_000,
    seed: int = 12345,
    overwrite: bool = False,
    progress: bool = True,
) -> bytes:
    """Trains a tokenizer and writes its file.

    The text is normalized in the same way as by the tokenizer itself. The same
    sentences, options and seed give the same bytes on any machine. Raises `UsageError`
    if an option is invalid, or the file exists, and `DataError` if the text is empty or
    too small for the vocabulary.

    Args:
        sentences: Iterable of str. The training text, read once.
        output_model: str, path or None. File to write (`gs://` too). Options other than
            the defaults are written next to it: for a `spiece.model` or `vocab.txt` to
            `tokenizer_config.json`, else to `<output_model>.json`.
        model_type: str. `unigram` (SentencePiece, as ALBERT has it), `wordpiece` (a
            `vocab.txt` for `WordPieceTokenizer`, as BERT has it) or `byte_bpe` (a
            `tokenizer.json` for `ByteBPETokenizer`, which keeps case and accents and
            ignores `do_lower_case`, `keep_accents` and `character_coverage`).
        vocab_size: int. Number of tokens, special ones included.
        do_lower_case: bool. Whether to lower-case text.
        keep_accents: bool. Whether to keep accents and other combining characters.
        character_coverage: float. Fraction of the characters in the text that get a
            token of their own.
        input_sentence_size: int. Maximum number of sentences to train on; from a
            larger text they are drawn at random.
        seed: int. Seed of that draw.
        overwrite: bool. Whether to replace an existing file.
        progress: bool. Whether to show a progress bar on stderr.

    Returns:
        bytes. Content of the file.
    """
    _check(model_type, vocab_size, character_coverage, input_sentence_size, seed)
    options_to = ""
    if output_model is not None:
        _check_output(os.fspath(output_model), overwrite)
        where = option_file(os.fspath(output_model))
        is_default = do_lower_case and not keep_accents
        if model_type != "byte_bpe" and (not is_default or files.exists(where)):
            options_to = where
            files.check_new("output_model", options_to, overwrite)
    start = time.monotonic()
    draw = functools.partial(
        _draw, limit=input_sentence_size, seed=seed, progress=progress
    )
    options = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    if model_type == "unigram":
        parts = (part for s in sentences for part in _prepare(s, **options))
        arguments = (vocab_size, character_coverage, input_sentence_size)
    else:
        parts = (p for s in sentences if s.strip() for p in _cut(to_unicode(s)))
        arguments = (vocab_size, character_coverage, options)
    data = _train(model_type, draw(parts), *arguments)
    logging.info("trained %d tokens in %.0f s", vocab_size, time.monotonic() - start)
    if output_model is not None:
        files.write_bytes(output_model, data, overwrite)
    if options_to:
        if model_type == "wordpiece":  # the name that transformers reads
            options["strip_accents"] = not options.pop("keep_accents")
        files.write_text(options_to, files.to_json(options) + "\n", overwrite)
    return data


def _draw(sentences: Iterable[str], limit: int, seed: int, progress: bool) -> list[str]:
    """Returns a uniform sample of sentences, drawn without replacement."""
    # Reservoir sampling holds at most `limit` of them. It is done here because
    # SentencePiece's own draw has a fixed seed, and because trainers hide exceptions of
    # the iterator they read from, such as the DataError for no sentences.
    from tqdm import tqdm

    # random.Random.random() gives the same numbers in every Python release.
    draw, drawn, count = random.Random(seed), [], 0
    options = {"desc": "reading text", "unit": " sentences", "mininterval": 0.5}
    for count, sentence in enumerate(
        tqdm(sentences, **options, disable=not progress), 1
    ):
        if len(drawn) < limit:
            drawn.append(sentence)
            continue
        place = int(draw.random() * count)
        if place < limit:
            drawn[place] = sentence
    message = "training text: expected some sentences, received none"
    require(count, message, error=DataError)
    logging.info("training on %d of %d sentences ...", len(drawn), count)
    return drawn


def _train(model_type: str, drawn: list[str], *arguments) -> bytes:
    """Trains in a separate process, because the libraries ignore signals."""
    # For a text that takes only a few seconds, a process is not worth its cost.
    characters = sum(map(len, drawn))
    drawn.reverse()
    # The list is emptied while it is read, since the trainer keeps its own copy.
    sentences = (drawn.pop() for _ in range(len(drawn)))
    if characters < _CHILD_CHARACTERS:
        return _TRAINERS[model_type](sentences, *arguments)
    package = str(pathlib.Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    child = subprocess.Popen(
        [sys.executable, "-c", "from albert_tf.text import train; train.serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,  # Ctrl-C in a terminal is for this process
    )
    with child:
        try:
            pickle.dump((model_type, arguments), child.stdin)
            for sentence in sentences:
                pickle.dump(sentence, child.stdin)
            child.stdin.close()
            start = time.monotonic()
            while not select.select([child.stdout], [], [], 30)[0]:
                logging.info("still training, %.0f s", time.monotonic() - start)
            result = pickle.load(child.stdout)
        except (EOFError, OSError):
            code = child.wait()
            raise DataError(
                f"training ended with exit code {code}; was there enough memory? Lower "
                "--input_sentence_size"
            ) from None
        finally:
            child.kill()
            with contextlib.suppress(OSError):  # what it has not read is lost
                child.stdin.close()
    if isinstance(result, Exception):
        raise result
    return result


def serve() -> None:
    """Runs the training that `_train` requests, and sends back data or an error."""
    read = functools.partial(pickle.load, sys.stdin.buffer)
    model_type, arguments = read()

    def sentences():
        with contextlib.suppress(EOFError):
            while True:
                yield read()

    try:
        result = _TRAINERS[model_type](sentences(), *arguments)
    except (UsageError, DataError) as e:
        result = e
    pickle.dump(result, sys.stdout.buffer)


def _train_unigram(sentences, vocab_size, character_coverage, limit) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=model,
            # Both are defaults, but the model's bytes differ if they are not set.
            model_type="unigram",
            shuffle_input_sentence=True,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            input_sentence_size=limit,
            **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
            control_symbols=list(SPECIAL_TOKENS[2:]),
            user_defined_symbols=list(USER_DEFINED_SYMBOLS),
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as e:
        raise _explain(str(e), vocab_size, character_coverage) from None
    return model.getvalue()


def _train_byte_bpe(sentences, vocab_size, *_) -> bytes:
    from albert_tf.text import byte_bpe

    data = byte_bpe.train(sentences, vocab_size, SPECIAL_TOKENS)
    size = byte_bpe.ByteBPETokenizer(data).vocab_size
    if size < vocab_size:
        raise _too_large(vocab_size, size)
    return data


def _train_wordpiece(sentences, vocab_size, character_coverage, options) -> bytes:
    from albert_tf.text import wordpiece

    data = wordpiece.train(sentences, vocab_size, character_coverage, **options)
    size = wordpiece.WordPieceTokenizer(data).vocab_size
    if size < vocab_size:
        raise _too_large(vocab_size, size)
    return data


_TRAINERS = {
    "unigram": _train_unigram,
    "byte_bpe": _train_byte_bpe,
    "wordpiece": _train_wordpiece,
}


def _prepare(
    sentence: str, do_lower_case: bool, keep_accents: bool = False
) -> Iterator[str]:
    """Yields a normalized sentence, in parts that the trainer accepts."""
    text = normalize_text(sentence, do_lower_case, keep_accents).translate(_RESERVED)
    return filter(None, map(str.strip, _cut(" ".join(text.split()))))


def _cut(text: str) -> Iterator[str]:
    """Yields the parts of a long text, cut before spaces where possible."""
    rest, start = len(text.encode("utf-8")), 0
    while rest > _MAX_BYTES:
        # A character takes at most four bytes.
        last = start + _MAX_BYTES // 4
        space = text.rfind(" ", start + 1, last)
        end = last if space < 0 else space
        yield text[start:end]
        rest -= len(text[start:end].encode("utf-8"))
        start = end
    yield text[start:]


def _check(model_type, vocab_size, character_coverage, input_sentence_size, seed):
    message = f"model_type must be one of {', '.join(MODEL_TYPES)}"
    require(model_type in MODEL_TYPES, message, model_type)
    special = len(SPECIAL_TOKENS)
    fixed = {"unigram": len(USER_DEFINED_SYMBOLS), "byte_bpe": _BYTES}
    fixed = fixed.get(model_type, 0)
    need = (
        f"vocab_size must be greater than {special + fixed}, the number of special "
        f"tokens ({special}) and fixed ones ({fixed})"
    )
    require(vocab_size > special + fixed, need, vocab_size)
    message = "character_coverage must be from 0.98 to 1"
    require(0.98 <= character_coverage <= 1.0, message, character_coverage)
    # SentencePiece treats 0 as "all", and its own lower limit is 100.
    message = "input_sentence_size must be greater than 100"
    require(input_sentence_size > 100, message, input_sentence_size)
    require(0 <= seed < 2**32, "seed must be from 0 to 2**32 - 1", seed)


def _check_output(path: str, overwrite: bool) -> None:
    """Checks the destination before hours of training, not after."""
    message = f"{path}: expected the name of a file, received a folder"
    require(not files.is_folder(path), message)
    folder = os.path.dirname(path)
    if folder and not files.is_remote(path):
        files.make_folder(folder)
    files.check_new("output_model", path, overwrite)


def _explain(reason: str, vocab_size: int, character_coverage: float) -> Exception:
    """Translates SentencePiece's message into an error of this package."""
    if match := re.search(r"set it to a value <= (\d+)", reason):
        return _too_large(vocab_size, int(match[1]))
    if match := re.search(r"smaller than required_chars\.? (\d+) vs (\d+)", reason):
        return UsageError(
            f"vocab_size must be at least {match[2]}, the number of required tokens "
            f"(the text's characters at character_coverage {character_coverage}, and "
            f"special tokens), received {vocab_size}"
        )
    return DataError(f"training text: SentencePiece cannot use it: {reason}")


def _too_large(vocab_size: int, possible: int) -> DataError:
    return DataError(
        f"training text: too small for vocab_size {vocab_size}: it supports at most "
        f"{possible} tokens; give more text, or vocab_size={possible}"
    )
