"""Makes the folder in which the pages of the documentation run.

`python docs/workspace.py docs/_work` needs the installed package and no network. What
is there already is kept, so only the first call, which runs the demo, takes minutes:

    demo_output/        what `make demo` leaves
    encoder/            its pretrained model, which the pages fine-tune
    text/               raw text
    topics.*.tsv        texts and labels of the demo, which its classifier has not seen
    pairs.*.tsv, ...    a table for every other task, made from docstrings, too
    configs/, docs/benchmarks/    those of the checkout
"""

import argparse
import ast
import collections
import dataclasses
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

from albert_tf.data.corpus import docstrings
from albert_tf.inference.token_classifier import split_words
from albert_tf.tasks.task import table_text

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Dependencies of this package, whose arguments are described.
PACKAGES = ("keras", "keras_hub", "matplotlib", "numpy")
# Of docstrings in Google's style and in NumPy's: the arguments, and each of them.
STYLES = (
    (
        re.compile(r"^(?:Args|Arguments):\n((?:(?: .*)?\n)+)", re.M),
        re.compile(r"^ {4}\*{0,2}(\w+)()(?: \(.*?\))?: (.*(?:\n {5,}.*)*)", re.M),
    ),
    (
        re.compile(r"^Parameters\n-{3,}\n(.*?)(?=^\S.*\n-{3,}|\Z)", re.M | re.S),
        re.compile(r"^(\w+) ?: (.+)\n((?: {4,}.*\n)+)", re.M),
    ),
)
RETURNS = re.compile(
    r"^Returns:\n((?: +.*\n)+)|^Returns\n-{3,}\n\S.*\n((?: {4,}.*\n)+)", re.M
)
# Types as NumPy's style writes them, by the label that a table gives them.
TYPES = {
    "array": r"array|sequence",
    "bool": r"\bbool",
    "function": r"callable|function",
    "number": r"\bint|\bfloat|scalar|number",
    "string": r"\bstr|\{'",
    "tuple": r"tuple|\(",
}


@dataclasses.dataclass
class Argument:
    """An argument of a function: its name, its type if it is known, what it is."""

    name: str
    type: str
    text: str


@dataclasses.dataclass
class Function:
    """A function or class with its first sentence and its described arguments."""

    name: str
    summary: str
    arguments: list[Argument]
    docstring: str


def make(folder: pathlib.Path, num_train: int, num_dev: int) -> None:
    """Makes what is missing in the folder, tables with at most so many rows."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "docs").mkdir(exist_ok=True)
    for name in ("configs", "docs/benchmarks"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    demo = folder / "demo_output"
    if not (demo / "README.md").exists():
        shutil.rmtree(demo, ignore_errors=True)
        command = [sys.executable, ROOT / "tools/demo.py", "--output_dir=demo_output"]
        subprocess.run(command, cwd=folder, check=True)
    if not (folder / "encoder").exists():
        shutil.copytree(demo / "pretrain/model", folder / "encoder")
    if (folder / "topics.dev.tsv").exists():  # it is the last one
        return

    def write(pattern: str, rows: list, text_of: Callable, per_row: int = 1) -> None:
        train, dev = num_train // per_row, num_dev // per_row
        for split, part in (("train", rows[dev:][:train]), ("dev", rows[:dev])):
            path = folder / pattern.format(split)
            path.write_text(text_of(part), encoding="utf-8")

    functions = read_functions()
    write_text(folder / "text", functions)
    for make_rows in (pairs, scores, several, choices, titles):
        name = make_rows.__name__
        head, *rows = make_rows(functions, random.Random(name))
        write(
            f"{name}.{{}}.tsv", rows, lambda part, head=head: table_text([head, *part])
        )
    write("tags.{}.conll", tags(functions, random.Random(0)), "\n".join)
    # Three questions about a text.
    asked = questions(functions, random.Random(0))
    write("questions.{}.json", asked, squad_text, per_row=3)
    head, *rows = (demo / "topics.dev.tsv").read_text("utf-8").splitlines(keepends=True)
    write("topics.{}.tsv", rows, lambda part: "".join([head, *part]))


def squad_text(paragraphs: list[dict]) -> str:
    """Returns the text of a file in SQuAD's format."""
    data = {"version": "1.1", "data": [{"title": "docs", "paragraphs": paragraphs}]}
    return json.dumps(data, indent=1)


def plain(text: str) -> str:
    """Returns a text in one line, without the markup of code."""
    text = re.sub(r":\w+:(?=`)|[`*]", "", text)
    return " ".join(text.split())


def read_functions() -> list[Function]:
    """Reads the functions and classes of the demo's packages, each docstring once."""
    packages = "|".join(PACKAGES)
    found = {}
    for path in docstrings.source_files():
        if not re.search(rf"-packages/(?:{packages})/.*(?<!_test)\.py", path):
            continue
        tree = ast.parse(pathlib.Path(path).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                docstring = (ast.get_docstring(node) or "") + "\n"
                arguments = [
                    Argument(name, kind, plain(text))
                    for part, item in STYLES
                    for match in part.finditer(docstring)
                    for name, kind, text in item.findall(match[1])
                    if 20 <= len(plain(text)) <= 300
                ]
                summary = plain(docstring.split("\n\n")[0])
                if summary:
                    found.setdefault(
                        docstring, Function(node.name, summary, arguments, docstring)
                    )
    return list(found.values())


def described(functions: list[Function]) -> list[Function]:
    """Returns the functions with the arguments whose description is not yet seen."""
    seen, found = set(), []
    for function in functions:
        new = [a for a in function.arguments if a.text not in seen]
        seen.update(a.text for a in new)
        found.append(dataclasses.replace(function, arguments=new))
    return found


def write_text(folder: pathlib.Path, functions: list[Function]) -> None:
    """Writes files of running text: a paragraph per line, an empty line between two."""
    folder.mkdir(exist_ok=True)
    documents = ["\n".join(docstrings.prose(f.docstring)) for f in functions]
    documents = [text for text in documents if len(text) > 200][:1000]
    for number, start in enumerate(range(0, len(documents), 250)):
        text = "\n\n".join(documents[start : start + 250]) + "\n"
        (folder / f"part{number}.txt").write_text(text, encoding="utf-8")


def pairs(functions, rng):
    """Does the description belong to the argument? Common and short ones only."""
    arguments = [a for f in described(functions) for a in f.arguments]
    arguments = [a for a in arguments if len(a.text) < 150]
    count = collections.Counter(a.name for a in arguments)
    arguments = [a for a in arguments if count[a.name] >= 12]
    rows = []
    for argument in rng.sample(arguments, len(arguments)):
        others = [a.name for a in arguments if a.name != argument.name]
        if rng.random() < 0.5:
            rows.append((argument.text, rng.choice(others), "other"))
        else:
            rows.append((argument.text, argument.name, "belongs"))
    return [("description", "argument", "label"), *rows]


def scores(functions, rng):
    """Where in its docstring is a paragraph, from 0 (first) to 5 (last)?"""
    rows = {}
    for function in functions:
        paragraphs = docstrings.prose(function.docstring)
        if len(paragraphs) > 3:
            place = rng.randrange(len(paragraphs))
            text = paragraphs[place]
            if 30 <= len(text) <= 300:
                rows[text] = (text, f"{5 * place / (len(paragraphs) - 1):.1f}")
    rows = list(rows.values())
    rng.shuffle(rows)
    return [("text", "score"), *rows]


def several(functions, rng):
    """Which types may an argument have, judged by its description?"""
    rows = []
    for function in described(functions):
        for argument in function.arguments:
            kinds = [k for k, p in TYPES.items() if re.search(p, argument.type)]
            if kinds:
                rows.append((argument.text, ";".join(kinds)))
    rng.shuffle(rows)
    return [("text", "types"), *rows]


def choices(functions, rng):
    """Which of four functions does the sentence describe?"""
    named = {
        f.summary: re.sub(r"(?<=[a-z])(?=[A-Z])", " ", f.name).replace("_", " ")
        for f in functions
        if len(f.name) > 3 and f.name[0] != "_" and 30 <= len(f.summary) <= 200
    }
    names, rows = sorted(set(named.values())), []
    for summary, name in named.items():
        four = rng.sample([n for n in names if n != name], 3) + [name]
        rng.shuffle(four)
        rows.append((summary, *four, str(four.index(name))))
    rng.shuffle(rows)
    return [("summary", *(f"choice{n}" for n in range(4)), "label"), *rows]


def titles(functions, rng):
    """Which sentence describes the function of that name?"""
    named = {}
    for f in functions:
        if len(f.name) > 3 and f.name[0] != "_" and 30 <= len(f.summary) <= 200:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", f.name).replace("_", " ")
            named.setdefault(words, f.summary)
    rows = list({text: name for name, text in named.items()}.items())
    rng.shuffle(rows)
    return [("text", "positive"), *((name, text) for text, name in rows)]


def tags(functions, rng):
    """Which words of a sentence are code, and of which kind?"""
    sentences = {}
    for function in functions:
        for paragraph in docstrings.prose(function.docstring):
            if not 1 <= paragraph.count("`") // 2 <= 6 or len(paragraph) > 240:
                continue
            lines = []
            for number, part in enumerate(paragraph.split("`")):
                kind = kind_of(part) if number % 2 else None
                for place, (start, end) in enumerate(split_words(part)):
                    tag = f"{'I' if place else 'B'}-{kind}" if kind else "O"
                    lines.append(f"{part[start:end]} {tag}")
            sentences["\n".join(lines) + "\n"] = None
    rows = list(sentences)
    rng.shuffle(rows)
    return rows


def kind_of(code: str) -> str:
    """Returns what a piece of code is."""
    if re.fullmatch(r"True|False|None|[-\d.e]+|(['\"]).*\1|\(.*\)|\[.*\]", code):
        return "value"
    return "name" if re.fullmatch(r"[\w.]+(\(.*\))?", code) else "expression"


def questions(functions, rng):
    """What does a function do, what is its argument, what does it return?"""
    paragraphs = []
    for number, function in enumerate(described(functions)):
        returned = first_sentence(RETURNS.search(function.docstring))
        if not returned or not function.arguments:
            continue
        argument = rng.choice(function.arguments)
        parts = {
            "What does it do?": ("", function.summary),
            f"What is {argument.name}?": (f" {argument.name}: ", argument.text),
            "What does it return?": (" Returns: ", returned),
        }
        context, asked = "", []
        for question, (before, text) in parts.items():
            answer = {"text": text, "answer_start": len(context + before)}
            name = f"{function.name}-{number}-{len(asked)}"
            asked.append({"id": name, "question": question, "answers": [answer]})
            context += before + text
        if max(len(one["answers"][0]["text"]) for one in asked) <= 100:
            paragraphs.append({"context": context, "qas": asked})
    rng.shuffle(paragraphs)
    return paragraphs


def first_sentence(match: re.Match | None) -> str:
    """Returns the first sentence of what a style of docstrings gave, or nothing."""
    text = plain(match[1] or match[2]) if match else ""
    return re.split(r"(?<=[.;])\s", text)[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--num_train", type=int, default=800)
    parser.add_argument("--num_dev", type=int, default=200)
    make(**vars(parser.parse_args()))
