"""Prints the most probable tokens for `[MASK]` in a text.

Example: `albert-tf fill_mask --model=my_model --text="The cat is so [MASK] ."`
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias
from albert_tf.cli.run import run
from albert_tf.errors import UsageError

_MODEL = flags.DEFINE_string(
    "model", None, "Folder or checkpoint with a masked LM head.", required=True
)
_TEXT = flags.DEFINE_multi_string(
    "text", [], "A text with [MASK]; may be given several times. Default: stdin."
)
_TOP_K = flags.DEFINE_integer("top_k", 5, "Tokens for each mask.")
_SPM_MODEL_FILE = flags.DEFINE_string(
    "spm_model_file",
    "",
    "Where the folder has no tokenizer: SentencePiece model or tokenizer.json.",
)
_JSON = flags.DEFINE_bool("json", False, "Print a JSON line for each text.")
define_alias("init_checkpoint", "model")
define_alias("tokenizer_file", "spm_model_file")


def main() -> None:
    """Loads the model, prints a table for each mask."""
    from albert_tf.inference.fill_mask import FillMask

    tokenizer = None
    if _SPM_MODEL_FILE.value:
        from albert_tf.text.load import load_tokenizer

        tokenizer = load_tokenizer(_SPM_MODEL_FILE.value)
    fill_mask = FillMask.from_pretrained(_MODEL.value, tokenizer=tokenizer)
    texts = _TEXT.value or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if not texts:
        raise UsageError("text: required, but not given")
    for text, result in zip(texts, fill_mask(texts, _TOP_K.value), strict=True):
        if _JSON.value:
            print(json.dumps({"text": text, "result": result}, ensure_ascii=False))
            continue
        print(text)
        for candidates in [result] if isinstance(result[0], dict) else result:
            _print_table(candidates)


def _print_table(candidates: list[dict]) -> None:
    width = max(len(row["token_str"]) for row in candidates)
    print(f"  {'score':>7}  {'token':>6}  {'':{width}}  sequence")
    for row in candidates:
        print(
            f"  {row['score']:7.4f}  {row['token']:6d}  {row['token_str']:{width}}  "
            f"{row['sequence']}"
        )


if __name__ == "__main__":
    run(main)
