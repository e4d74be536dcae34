"""A page about runs: one HTML file that needs nothing else, also offline.

Nothing is loaded from elsewhere, and the browser enforces it: it runs only the script
whose digest the page names. All content of the page is escaped text. The same content
gives the same bytes. Chart libraries (Bokeh, Vega-Altair) need 1 to 2 MB in every page
and cannot be used with the keyboard, so the script is our own.
"""

import base64
import functools
import hashlib
import json
import numbers
import re
import struct
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from albert_tf.figure import PAGE_DPI
from albert_tf.storage.templates import templates

# Files of the script, in order of their dependencies.
_SCRIPTS = ("numbers", "view", "chart", "controls")
# Only the beginning of a longer text is shown, and all of it after a click.
PREVIEW = 200
# Pixels of a figure per pixel of the page: screens may have more than the page.
PIXEL_RATIO = PAGE_DPI / 96
# Control characters, surrogates and noncharacters are not allowed in HTML; marks that
# override the direction of writing would garble the text after them.
_UNPRINTABLE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)


class Table(NamedTuple):
    """A table whose first column names the rows; without rows it is not shown.

    Attributes:
        rows: Sequence of rows, each with one value of any type per column.
        marked: int. Index of the row that stands out, or None.
        stacked: bool. Whether a narrow screen shows the cells of a row one below the
            other, for tables with long texts.
    """

    caption: str
    names: Sequence[str]
    rows: Sequence[Sequence[Any]]
    marked: int | None = None
    stacked: bool = False

    @classmethod
    def of(cls, caption: str, lines: Sequence[Mapping[str, Any]], **more) -> "Table":
        """Returns a table with a column for each name in the lines."""
        names = list(dict.fromkeys(name for line in lines for name in line))
        rows = [[line.get(name) for name in names] for line in lines]
        return cls(caption, names, rows, **more)

    @classmethod
    def across(
        cls,
        caption: str,
        corner: str,
        columns: Mapping[str, Mapping[str, Any]],
        marked: str | None = None,
    ) -> "Table":
        """Returns a table with a row for each name in the columns."""
        names = list(
            dict.fromkeys(name for column in columns.values() for name in column)
        )
        rows = [
            [name, *(column.get(name) for column in columns.values())] for name in names
        ]
        index = names.index(marked) if marked in names else None
        return cls(caption, [corner, *columns], rows, index)

    @property
    def numeric(self) -> list[bool]:
        """Flags numeric columns; they are right-aligned."""
        return [all(map(_is_number, column)) for column in zip(*self.rows, strict=True)]


class Figure(NamedTuple):
    """A picture.

    Attributes:
        png: bytes. The picture, with `PIXEL_RATIO` pixels per pixel of the page.
        alt: str. Description of the picture for readers who cannot see it.
    """

    png: bytes
    alt: str
    caption: str = ""

    @property
    def uri(self) -> str:
        """The picture as a data URI (RFC 2397)."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height on the page, in its pixels."""
        # The header chunk comes first and starts with the size (PNG, section 11.2.1).
        width, height = struct.unpack(">II", self.png[16:24])
        return round(width / PIXEL_RATIO), round(height / PIXEL_RATIO)


def render(
    template: str,
    title: str,
    subtitle: str,
    data: Mapping[str, Any] | None = None,
    **values: Any,
) -> bytes:
    """Returns a page as an HTML file; `data` is for the script that draws curves."""
    made = _templates().get_template(f"{template}.html.j2").make_module(values)
    parts = "\n".join(_file(f"{name}.js") for name in _SCRIPTS)
    # Text of a run becomes text nodes only; nothing in the script is global.
    script = f'(function () {{\n"use strict";\n{parts}}})();\n' if data else ""
    page = _templates().get_template("page.html.j2")
    text = page.render(
        title=title,
        subtitle=subtitle,
        sections=made.sections,
        style=f"\n{_file('page.css')}",
        script=script,
        data=data,
        digest=_digest,
    )
    return text.encode("utf-8")


def _file(name: str) -> str:
    return (resources.files("albert_tf.reports") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Returns the source expression of an inline element (CSP, section 2.3.1)."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def clean(text: str) -> str:
    r"""Returns a text with its unprintable characters written as in Python: `\x00`."""
    return _UNPRINTABLE.sub(_escape, text.replace("\r\n", "\n"))


def as_text(value: Any) -> str:
    """Returns a value of any type as text for people.

    Numbers, including NumPy's, are rounded to 4 digits; the items of a list are
    separated by commas.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return "–"
    value = _plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return f"{value:,}"
    if isinstance(value, numbers.Real):
        return _round(float(value))
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return ", ".join(map(as_text, value))
    return str(value)


def as_setting(value: Any) -> str:
    """Returns the value of a setting in a form for input: 1e-05, 30000."""
    if isinstance(value, list | tuple):
        return ",".join(map(as_setting, value))
    value = _plain(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else as_text(value)


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `{"versions keras": 3}` for `{"versions": {"keras": 3}}`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{name} {inner}": v for inner, v in flatten(value).items()}
        else:
            flat[name] = value
    return flat


def _plain(value: Any) -> Any:
    """Converts a scalar of NumPy, whose bool is not a bool, to Python's."""
    return value.item() if getattr(value, "shape", None) == () else value


def _round(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.4f}"
    return f"{value:.4g}"


def _is_number(value: Any) -> bool:
    return value is None or (
        isinstance(value, numbers.Real) and not isinstance(value, bool)
    )


def _escape(match: re.Match) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@functools.cache
def _templates():
    """Returns the templates; values in them are cleaned, then escaped."""

    def printable(value: Any) -> Any:
        # The result of a macro is already HTML, an object of markupsafe.
        return value if hasattr(value, "__html__") else clean(str(value))

    blocks = {"trim_blocks": False, "lstrip_blocks": False}
    environment = templates("reports", autoescape=True, finalize=printable, **blocks)
    environment.filters["text"] = as_text
    environment.globals["preview"] = PREVIEW
    compact = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    environment.policies["json.dumps_kwargs"] = compact
    return environment
