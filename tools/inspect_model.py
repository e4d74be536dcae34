"""Shows what happens inside models, layer by layer: tables, JSON and pictures.

MODEL is a checkpoint in any format. For each layer, its input and output are compared
(Figure 1 of the paper), with what the masked-LM head answers after it; pictures show
attention maps and the way of each token.

Example: `albert-tf inspect runs/shared runs/unshared hf://google-bert/bert-base-uncased
--output_dir=inspected`
"""

# The verb is called `inspect`; a file of this name would hide Python's module.

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags, logging

from albert_tf.cli import start
from albert_tf.cli.flags import define_alias
from albert_tf.cli.run import run
from albert_tf.converters.detect import check_path
from albert_tf.errors import UsageError
from albert_tf.storage import files, folders

_TEXT = flags.DEFINE_multi_string(
    "text", [], "Text to look at, perhaps with [MASK]; repeatable."
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    "",
    "File with one text per line. Default, without --text: ten English sentences.",
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "", "New folder for inspect.json and pictures. Default: none."
)
_LAYERS = flags.DEFINE_list(
    "layers",
    None,
    "Layers whose attention is shown, from 1. Default: the first, a middle and the "
    "last one.",
)
_TOP_K = flags.DEFINE_integer("top_k", 5, "Answers per mask.", 1)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", None, "Longer texts are cut. Default: the model's maximum.", 3
)
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
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")
define_alias("tokenizer_file", "spm_model_file")
_RESULT = "inspect.json"
_OWN = re.compile(rf"{_RESULT}|(layers|(answers|attention|path)_\d+.*)\.png")


def main(paths: list[str]) -> None:
    """Inspects the models, prints tables and writes the folder."""
    texts, folder = list(_TEXT.value), _OUTPUT_DIR.value
    if _INPUT_FILE.value:
        texts += filter(None, files.read_lines(_INPUT_FILE.value))
        if not texts:
            raise UsageError(f"--input_file={_INPUT_FILE.value}: holds no text")
    if not all(one.isdecimal() for one in _LAYERS.value or ()):
        raise UsageError(f"--layers must be numbers, received {_LAYERS.value}")
    layers = [int(one) for one in _LAYERS.value or ()] or None
    there = files.list_folder(folder) if files.is_folder(folder) else []
    own = {_RESULT, *filter(_OWN.fullmatch, there)}
    if folder:
        folders.check_free(folder, _OVERWRITE.value, own)
    for path in paths:
        check_path(path)
    start.use_onednn("float32")
    # TensorFlow is imported, and weights are read, after the checks that need neither.
    from albert_tf.inference.inspection import TEXTS, inspect_model
    from albert_tf.reports import inspection

    results = [
        inspect_model(
            path,
            texts or TEXTS,
            layers=layers,
            top_k=_TOP_K.value,
            max_seq_length=_MAX_SEQ_LENGTH.value,
            tokenizer=_SPM_MODEL_FILE.value or None,
            do_lower_case=_DO_LOWER_CASE.value,
            keep_accents=_KEEP_ACCENTS.value,
        )
        for path in paths
    ]
    found = {"texts": texts or list(TEXTS), "models": results}
    text = files.to_json(found, ensure_ascii=False)
    print(text if _JSON.value else inspection.to_text(results))
    if folder:
        with folders.writing(folder, _OVERWRITE.value, own, last=_RESULT) as out:
            for name, data in inspection.draw(results):
                out.write(name, data)
            # A flag may contain bytes that are not UTF-8; they are written as in JSON.
            out.write(_RESULT, f"{text}\n".encode(errors="backslashreplace"))
        logging.info("%s: written", folder)


if __name__ == "__main__":
    run(main, "MODEL")
