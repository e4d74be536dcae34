"""Finds the commands and the Python that README, CONTRIBUTING and docs/ show."""

import dataclasses
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).parents[1]
# What a command in the middle of a sentence begins with.
_PROGRAM = re.compile(r"(albert-tf|python|pip|make|\.venv/bin/\S+|\.ci/run)( |$)")
_FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^``` *$", re.S | re.M)
# A cell with commands, which may have options; `make docs` runs it.
_CELL = re.compile(r"(?::\w+:.*\n)*%%sh\n")
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclasses.dataclass(frozen=True)
class Shown:
    """Something that a page shows to be run.

    `kind` is "sh" for one command and "python" for a block of code; `cell` says that it
    is in a cell, which `make docs` runs, with all that page's.
    """

    page: str
    line: int
    kind: str
    text: str
    cell: bool = False

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages() -> list[pathlib.Path]:
    """Returns the documentation of the repository, except for the changelog."""
    names = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    # Not what the build leaves.
    folders = [ROOT / "docs", *(ROOT / "docs").glob("[!_.]*/")]
    return names + sorted(page for folder in folders for page in folder.glob("*.md"))


def shown(page: pathlib.Path) -> list[Shown]:
    """Returns what a page shows to be run, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    found = []

    def add(position, kind, content, cell=False):
        line = text.count("\n", 0, position) + 1
        found.append((position, Shown(name, line, kind, content, cell)))

    for block in _FENCE.finditer(text):
        if block[1] == "python":
            add(block.start(2), "python", block[2])
        elif block[1] in ("sh", "bash", "console", "shell"):
            for offset, command in commands(block[2]):
                add(block.start(2) + offset, "sh", command)
        elif block[1].startswith("{code-cell}") and (cell := _CELL.match(block[2])):
            for offset, command in commands(block[2][cell.end() :]):
                add(block.start(2) + cell.end() + offset, "sh", command, cell=True)
    # Same length, so that the positions stay right.
    prose = _FENCE.sub(lambda block: " " * len(block[0]), text)
    for span in _SPAN.finditer(prose):
        if _PROGRAM.match(span[1]):
            add(span.start(), "sh", span[1])
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]


def commands(script: str) -> list[tuple[int, str]]:
    """Cuts a script into (offset, command), without comments.

    A backslash continues a line; a loop is one command.
    """
    found = []
    for match in re.finditer(
        r"for [^\n]*; do\n(?:[^\n]*\n)*?done|(?:[^\n]*\\\n)*[^\n]*\n?", script
    ):
        command = re.sub(r"(^|\s)#[^'\"\n]*$", "", match[0].strip()).strip()
        if command:
            found.append((match.start(), command))
    return found


def words(command: str) -> list[str]:
    """Returns the words of a command."""
    return shlex.split(command.replace("\\\n", " "))


def examples() -> list[Shown]:
    """Returns the commands in the docstrings of tools/ and configs/."""
    found = []
    for path in [*sorted((ROOT / "tools").glob("*.py")), *_configs()]:
        text = path.read_text(encoding="utf-8").split('"""')[1]
        name = path.relative_to(ROOT).as_posix()
        # A paragraph that starts with the program, or a span in backticks.
        for match in re.finditer(
            r"`(albert-tf [^`]+)`|^ *(python tools/(?:.*\\\n)*.*)$", text, re.M
        ):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Shown(name, line, "sh", match[1] or match[2]))
    return found


def _configs() -> list[pathlib.Path]:
    return sorted((ROOT / "configs").rglob("*.py"))
