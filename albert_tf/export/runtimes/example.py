"""Writes the program that runs an exported model, for whoever gets its folder."""

import json
from collections.abc import Sequence

from albert_tf import features
from albert_tf.export.runtimes.runtime import Runtime
from albert_tf.export.runtimes.tokens_graph import TokensGraph
from albert_tf.heads import PROBLEM_TYPES
from albert_tf.text.tokenizer import Tokenizer

FILE = "example.py"
# What a single text is to each input.
_VALUES = {
    features.TOKEN_IDS: "row",
    features.SEGMENT_IDS: "row * 0",
    features.PADDING_MASK: "row * 0 + 1",
    features.MASK_POSITIONS: "row[:, :1] * 0 + 1",
    features.P_MASK: "row * 0",
}


def make_example(
    runtime: Runtime,
    quantization: str,
    graph: TokensGraph,
    tokenizer: Tokenizer,
    length: int,
    labels: Sequence[str],
    problem_type: str | None,
) -> str:
    """Returns a program that answers a text with the files of the folder.

    Classifiers print labels and scores; other models, whose answers take more than a
    text or more than ten lines, the shapes of their outputs.

    Args:
        runtime: `Runtime`.
        quantization: str. As given to the runtime.
        graph: `TokensGraph`. The model.
        tokenizer: `Tokenizer`. Of the folder.
        length: int. Maximum length of a row.
        labels: Sequence of str. The labels' names; empty if there are none.
        problem_type: str or None. Of a text classifier.
    """
    importing, running = runtime.example(quantization)
    library = "tokenizers" if tokenizer.file_name.endswith(".json") else "sentencepiece"
    ids = "[tokenizer.cls_id, *ids, tokenizer.sep_id]"
    ids = f"[[{ids}]]" if graph.head.input_rank == 3 else f"[{ids}]"
    inputs = ", ".join(f'"{name}": {_VALUES[name]}' for name in graph.inputs)
    lines = [
        f"# Needs {runtime.example_needs}, absl-py, numpy, {library} and albert_tf.",
        "import pathlib, sys, albert_tf, numpy as np",
        importing,
        "here = pathlib.Path(__file__).parent",
        "tokenizer = albert_tf.load_tokenizer(here)",
        f"ids = tokenizer.encode(sys.argv[1])[:{length - 2}]",
        f"row = np.array({ids}, np.int32)",
        f"inputs = {{{inputs}}}",
        running,
    ]
    if labels:
        lines.append(f"labels = {json.dumps(list(labels))}")
    lines.append(_printing(graph.head.name, problem_type))
    return "\n".join(lines) + "\n"


def _printing(head: str | None, problem_type: str | None) -> str:
    if problem_type == PROBLEM_TYPES[2]:
        return (
            'print(labels[outputs["logits"][0].argmax()], '
            'outputs["logits"][0].tolist())'
        )
    if problem_type is not None:
        return 'print(dict(zip(labels, outputs["logits"][0].tolist())))'
    if head == "token_classifier":
        return 'print(*(labels[i] for i in outputs["logits"][0].argmax(-1)))'
    return "print(*(f'{name} {array.shape}' for name, array in outputs.items()))"
