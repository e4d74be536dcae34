"""Runs `tools/<verb>.py` for `albert-tf <verb> --flag=value ...`."""

import ast
import pathlib
import runpy
import sys
from collections.abc import Sequence

VERBS = (
    "train_tokenizer",
    "create_pretraining_data",
    "pretrain",
    "report",
    "finetune",
    "evaluate",
    "predict",
    "embed",
    "search",
    "mine_negatives",
    "glue_submission",
    "fill_mask",
    "inspect",
    "convert_checkpoint",
    "fold",
    "export",
    "verify_export",
    "benchmark",
    "facts",
    "plan",
    "demo",
)
# A file `inspect.py` next to other commands would hide Python's module from them.
_FILES = {"inspect": "inspect_model"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the verb given on the command line; without one, lists the verbs."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    files = verb_files()
    if not arguments or arguments[0] in ("--help", "-h", "-help", "help"):
        print(_overview(files))
        return 0
    verb, *rest = arguments
    if verb == "--version":
        import albert_tf

        print(f"albert_tf {albert_tf.__version__}")
        return 0
    if verb not in files:
        print(f"error: {_no_such_verb(verb, files)}", file=sys.stderr)
        return 2
    sys.argv = [str(files[verb]), *rest]
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def verb_files() -> dict[str, pathlib.Path]:
    """Returns the verbs and their files in this folder, in the usual order of use."""
    folder = pathlib.Path(__file__).resolve().parent
    paths = {verb: folder / f"{_FILES.get(verb, verb)}.py" for verb in VERBS}
    return {verb: path for verb, path in paths.items() if path.is_file()}


def _overview(files: dict[str, pathlib.Path]) -> str:
    lines = ["usage: albert-tf <verb> [--flag=value ...]", ""]
    width = max(map(len, files), default=0)
    for verb, path in files.items():
        # Read, not imported: the tools may import TensorFlow.
        tree = ast.parse(path.read_text(encoding="utf-8"))
        summary = (ast.get_docstring(tree) or "").split("\n")[0]
        lines.append(f"  {verb:{width}}  {summary}")
    lines += ["", "`albert-tf <verb> --help` lists the flags of a verb."]
    return "\n".join(lines)


def _no_such_verb(verb: str, files: dict[str, pathlib.Path]) -> str:
    import difflib

    close = difflib.get_close_matches(verb.replace("-", "_"), files, n=1, cutoff=0.5)
    if close:
        return f"unknown verb {verb!r}; did you mean {close[0]!r}?"
    return f"unknown verb {verb!r}; the verbs are {', '.join(files)}"


if __name__ == "__main__":
    sys.exit(main())
