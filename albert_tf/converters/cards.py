"""The cards of models, in Markdown."""

import functools
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.storage.templates import templates


def render(template: str, **values: Any) -> str:
    """Renders a Markdown template of this folder with values."""
    return _environment().get_template(f"{template}.md.j2").render(values)


def _sizes(config: AlbertConfig) -> str:
    own = f", depth_rank {config.depth_rank}" if config.depth_rank else ""
    own += ", depth_embedding" if config.depth_embedding else ""
    return (
        f"sharing `{config.sharing}`: {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, embeddings of {config.embedding_size}, vocabulary of "
        f"{config.vocab_size:,}{own}"
    )


@functools.cache
def _environment():
    environment = templates("converters")
    environment.filters["thousands"] = "{:,}".format
    environment.globals["sizes"] = _sizes
    return environment
