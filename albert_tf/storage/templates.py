"""Texts from templates: files `*.j2` next to the modules that fill them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def templates(folder: str, **options: Any) -> "jinja2.Environment":
    """Returns the templates in a folder of `albert_tf`; imports jinja2 on use.

    `options` of `jinja2.Environment` replace the options for plain text.
    """
    import jinja2

    text = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return jinja2.Environment(
        loader=jinja2.PackageLoader("albert_tf", folder),
        undefined=jinja2.StrictUndefined,
        **{**text, **options},
    )
