"""The embedded corpus: the docstrings of the standard library and installed packages.

English prose that exists on every machine that can run this package: about 29,000
docstrings in addition to TensorFlow's. Source files are read, never imported. A
document is one docstring: its sentences form a coherent text, whereas sentences of
different functions do not. The following are left out: docstrings of fewer than
`MIN_CHARS` characters of prose, repeated ones, doctest lines (`>>>`, `...` and the
output up to a blank line), fenced code, section headings (`Args:`, or underlined),
directives (`.. note::`) and, of roles such as ``:func:`name` ``, the role. Items of a
list are separate paragraphs. The standard library comes first, then packages by name,
so that a limit on the size gives the same text on equal installations.
"""

import ast
import csv
import hashlib
import inspect
import io
import os
import random
import re
import sysconfig
import warnings
from collections.abc import Iterator

from albert_tf.errors import DataError, require
from albert_tf.storage import files

MIN_CHARS = 200
_SKIPPED_FOLDERS = {"__pycache__", "site-packages", "dist-packages", "test", "tests"}
_UNDERLINE = re.compile(r"^\W{3,}$")
_NOISE = re.compile(r"\.\. |(?:[A-Z]\w* ?){1,2}:$")  # directives; `Args:`
_ROLE = re.compile(r":[\w:+-]+:(?=`)")
# Bullets, and `name: ...`, `name (type): ...`, `:param name: ...`.
_ITEM = re.compile(r"(?:[-*•+]|\d+[.)])\s|:?[\w*`]+(?: \w+)?(?: \([^)]*\))?: ")
# Up to the next triple-quoted string, skipping comments and other strings. The last
# alternatives make every search end where the next one can start. Quantifiers are not
# possessive, because Python before 3.11.5 implements them incorrectly.
_STRING = re.compile(
    r"""
    (?:[^"'\#]+
      |\#[^\n]*
      |"(?!"")(?:[^"\\\n]|\\.)*"
      |'(?!'')(?:[^'\\\n]|\\.)*')*
    (?:\"{3}((?:[^"\\]|\\.|"(?!""))*)\"{3}
      |'{3}((?:[^'\\]|\\.|'(?!''))*)'{3}
      |["']
      |\Z)
    """,
    re.DOTALL | re.VERBOSE,
)
_HEADER_END = re.compile(r":\s*(?:\#.*)?$")
# Dependencies of this package, so they are installed. None is the standard library.
TOPICS = {
    "python": None,
    "numpy": "numpy",
    "keras": "keras",
    "matplotlib": "matplotlib",
}


def source_files() -> list[str]:
    """Returns the Python files of the standard library, then of installed packages."""
    paths = sysconfig.get_paths()
    roots = [paths["stdlib"], paths["purelib"], paths["platlib"]]
    unique: dict[str, None] = {}
    for root in dict.fromkeys(map(os.path.realpath, roots)):
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
            for name in sorted(names):
                if name.endswith(".py"):
                    unique.setdefault(os.path.join(folder, name))
    return list(unique)


def read_docstrings(paths: list[str], max_bytes: int | None) -> Iterator[list[str]]:
    """Yields the prose of docstrings in files, each a list of paragraphs.

    Files that are not UTF-8 are skipped. At most `max_bytes` of prose are yielded.
    """
    seen: set[bytes] = set()
    used = 0
    for path in paths:
        for docstring in _docstrings(path):
            paragraphs = prose(docstring)
            length = sum(map(len, paragraphs))
            if length < MIN_CHARS:
                continue
            text = "\n".join(paragraphs).encode()
            key = hashlib.blake2b(text, digest_size=16).digest()
            if key in seen:
                continue
            used += len(text)
            if max_bytes is not None and used > max_bytes:
                return
            seen.add(key)
            yield paragraphs


def write_topic_tables(
    train_file: str | os.PathLike,
    dev_file: str | os.PathLike,
    *,
    train_per_topic: int = 40,
    dev_per_topic: int = 250,
) -> None:
    """Writes two TSV tables with the columns `text` and `label`, for the demo.

    The label of a docstring is its package. In each table, every topic of `TOPICS` has
    the same number of docstrings, and no docstring is in both. The training table is
    small, because pretraining helps most then; the dev table is large, for precise
    measurements. Raises `DataError` if a package has too few docstrings.
    """
    rng = random.Random(0)
    per_topic = train_per_topic + dev_per_topic
    train, dev = [], []
    for label, package in TOPICS.items():
        texts = [" ".join(p) for p in read_docstrings(_files_of(package), None)]
        message = f"docstrings of {label}: expected at least {per_topic}"
        require(len(texts) >= per_topic, message, len(texts), error=DataError)
        rows = [(text, label) for text in rng.sample(texts, per_topic)]
        dev += rows[:dev_per_topic]
        train += rows[dev_per_topic:]
    for path, rows in ((train_file, train), (dev_file, dev)):
        rng.shuffle(rows)
        out = io.StringIO()
        table = csv.writer(out, delimiter="\t", lineterminator="\n")
        table.writerows([("text", "label"), *rows])
        files.write_text(path, out.getvalue())


def _files_of(package: str | None) -> list[str]:
    paths = sysconfig.get_paths()
    installed = {os.path.realpath(paths[name]) for name in ("purelib", "platlib")}
    sources = source_files()
    if package is None:
        return [path for path in sources if not path.startswith(tuple(installed))]
    folders = tuple(os.path.join(root, package) + os.sep for root in installed)
    return [path for path in sources if path.startswith(folders)]


def prose(docstring: str) -> list[str]:
    """Returns the paragraphs of a docstring without markup and code."""
    paragraphs: list[str] = []
    current: list[str] = []
    indent = -1
    in_doctest = in_fence = False
    for line in [*inspect.cleandoc(docstring).split("\n"), ""]:
        text = line.strip()
        in_doctest = bool(text) and (in_doctest or text.startswith(">>>"))
        is_fence = text.startswith("```")
        in_fence ^= is_fence and text.count("```") == 1
        underline = _UNDERLINE.match(text)
        if underline and len(current) == 1:
            current = []  # a heading
        noise = in_doctest or in_fence or is_fence or underline or _NOISE.match(text)
        depth = len(line) - len(line.lstrip())
        hangs = len(current) == 1 and depth > indent and _ITEM.match(current[0])
        moved = depth != indent and not hangs
        if current and (not text or noise or moved or _ITEM.match(text)):
            paragraphs.append(" ".join(" ".join(current).split()))
            current = []
        if text and not noise:
            current.append(_ROLE.sub("", text).replace("``", "`"))
            indent = depth
    return [paragraph for paragraph in paragraphs if paragraph]


def _docstrings(path: str) -> Iterator[str]:
    """Yields the docstrings of one source file, in order."""
    # They are located by their quotes, which takes a tenth of the time of parsing.
    try:
        with open(path, "rb") as file:
            data = file.read()
        if b'"""' not in data and b"'''" not in data:
            return
        source = data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return
    for match in _STRING.finditer(source):
        number = match.lastindex
        if number is None or match.end(number) - match.start(number) < MIN_CHARS:
            continue
        start = match.start(number) - 3
        line_start = source.rfind("\n", 0, start) + 1
        prefix = source[line_start:start].strip().lower()
        if prefix not in ("", "r", "u") or not _opens_body(source, line_start):
            continue
        text = match[number]
        if "\\" in text and prefix != "r":
            text = _unescape(source[start : match.end()])
        if "\0" not in text:
            yield text


def _opens_body(source: str, end: int) -> bool:
    """Returns whether the line at `end` opens a module, class or function body."""
    while end > 0:
        start = source.rfind("\n", 0, end - 1) + 1
        line = source[start:end].strip()
        if line and not line.startswith("#"):
            return bool(_HEADER_END.search(line))
        end = start
    return True


def _unescape(literal: str) -> str:
    """Returns the value of a literal; empty if it is not valid text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes
            text = ast.literal_eval(literal)
        text.encode()  # fails for a lone surrogate
    except (SyntaxError, ValueError):
        return ""
    return text
