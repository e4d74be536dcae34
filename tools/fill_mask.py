"""Prints the most probable tokens for `[MASK]`; `--json`: one object per text.

Example: `albert-tf fill_mask --model=my_model --text="The cat is so [MASK] ."`
"""

import json
import pathlib
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags, logging

from albert_tf.cli.flags import define_alias, define_settings
from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.inference.settings import BulkSettings

_MODEL = flags.DEFINE_string(
    "model", None, "Model folder or checkpoint with a masked LM head.", required=True
)
_TEXT = flags.DEFINE_multi_string(
    "text", [], "Text with [MASK]; repeatable. Default: one text per line of stdin."
)
_TOP_K = flags.DEFINE_integer("top_k", 5, "Answers per mask.", 1)
define_settings(BulkSettings, names=("layers",))
_SPM_MODEL_FILE = flags.DEFINE_string(
    "spm_model_file",
    "",
    "SentencePiece model, tokenizer.json or vocab.txt, if the model has none.",
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case", None, "Lower-case text, if the model does not say. Default: true."
)
_KEEP_ACCENTS = flags.DEFINE_bool(
    "keep_accents", None, "Keep accents, if the model does not say. Default: false."
)
_JSON = flags.DEFINE_bool("json", False, "Print JSON.")
define_alias("init_checkpoint", "model")
define_alias("tokenizer_file", "spm_model_file")


def main() -> None:
    """Loads the model and prints a table for each mask."""
    from albert_tf.inference.fill_mask import FillMask

    fill_mask = FillMask.from_pretrained(
        _MODEL.value,
        tokenizer=_SPM_MODEL_FILE.value or None,
        do_lower_case=_DO_LOWER_CASE.value,
        keep_accents=_KEEP_ACCENTS.value,
        layers=flags.FLAGS["layers"].value,
    )
    texts = _TEXT.value or list(_usable_lines(fill_mask))
    if not texts:
        raise UsageError("--text: required, but not given")
    for text, result in zip(texts, fill_mask(texts, _TOP_K.value), strict=True):
        if _JSON.value:
            print(json.dumps({"text": text, "result": result}, ensure_ascii=False))
            continue
        print(text)
        for candidates in [result] if isinstance(result[0], dict) else result:
            _print_table(candidates)


def _usable_lines(fill_mask) -> Iterator[str]:
    """Yields the lines of stdin; one that cannot be answered is logged and skipped."""
    for number, line in enumerate(sys.stdin, 1):
        text = line.rstrip("\n")
        if not text.strip():
            continue
        try:
            fill_mask.encode(text)
        except UsageError as e:
            logging.warning("stdin, line %d skipped: %s", number, e)
        else:
            yield text


def _print_table(candidates: list[dict]) -> None:
    # The mark of a word's start alone would be invisible.
    tokens = [row["token_str"] or "▁" for row in candidates]
    width = max(map(len, tokens))
    print(f"  {'score':>7}  {'token':>6}  {'':{width}}  sequence")
    for token, row in zip(tokens, candidates, strict=True):
        print(
            f"  {row['score']:7.4f}  {row['token']:6d}  {token:{width}}  "
            f"{row['sequence']}"
        )


if __name__ == "__main__":
    run(main)
