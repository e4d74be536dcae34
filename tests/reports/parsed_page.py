"""Reads a page as a browser does, and refuses what a browser would have to mend."""

import base64
import html.parser
import io

import numpy as np
from matplotlib.image import imread

# Elements without an end tag.
VOID = {"br", "hr", "img", "link", "meta"}
# Attributes that may name something to load.
LINKS = {"src", "href", "srcset", "action", "data", "poster", "background", "style"}


class ParsedPage(html.parser.HTMLParser):
    """A page whose tags are balanced.

    Args:
        page: bytes. The file.

    Attributes:
        titles: Texts of the headings `h2`.
        text: All text outside of `style` and `script`.
        scripts: Content of the elements `script`.
        tags: Names of all elements with their attributes, in order.
        images: The decoded pictures, float32 `[height, width, 4]`.
    """

    def __init__(self, page: bytes):
        super().__init__(convert_charrefs=True)
        self.titles: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.images: list[np.ndarray] = []
        self._open: list[str] = []
        self.feed(page.decode("utf-8"))
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} has an attribute twice: {names}"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "h2":
            self.titles.append("")
        if tag == "img":
            kind, data = dict(attrs)["src"].split(",", 1)
            assert kind == "data:image/png;base64"
            self.images.append(
                imread(io.BytesIO(base64.b64decode(data, validate=True)))
            )

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open}"
        self._open.pop()

    def handle_data(self, data):
        if "style" in self._open:
            return
        if "script" in self._open:
            self.scripts.append(data)
            return
        self.text += data
        if "h2" in self._open:
            self.titles[-1] += data

    def all(self, tag: str) -> list[dict]:
        """Attributes of all elements of a name."""
        return [attributes for name, attributes in self.tags if name == tag]

    def links(self) -> list[str]:
        """Everything that the page might load or lead to."""
        return [
            value or ""
            for _, attributes in self.tags
            for name, value in attributes.items()
            if name in LINKS
        ]
