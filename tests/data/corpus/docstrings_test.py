"""The embedded corpus of docstrings."""

import itertools

import pytest

from albert_tf.data.corpus import docstrings
from albert_tf.data.corpus.corpus import open_corpus

DOCSTRING = """Opens the door.

    Summary line one of a paragraph that
    goes on here.

    Parameters
    ----------
    key : str
        The key, see :func:`make_key`.

    .. note:: left out

    Args:
        path: Where the file
            lies.
        mode (str): How.

    ```python
    open("x")
    ```

    >>> open("x")
    True

    * first item
    * second ``item``
    """


def test_prose_leaves_markup_out():
    assert docstrings.prose(DOCSTRING) == [
        "Opens the door.",
        "Summary line one of a paragraph that goes on here.",
        "key : str",
        "The key, see `make_key`.",
        "path: Where the file lies.",
        "mode (str): How.",
        "* first item",
        "* second `item`",
    ]


PROSE = "This is a sentence of some length about the matter. " * 5
SOURCE = f'''# It's "a" comment with """ quotes
"""{PROSE}Module."""
raise RuntimeError
x = """{PROSE}Assigned."""


def f(
    a: str = "#:\\"\\\\",
):  # noqa: x
    # A comment between.

    r"""{PROSE}Raw \\d."""
    call("""{PROSE}Argument.""")


class A: pass


async def g(a={{"'": 1}}) -> {{"b": ''}}:
    "One line."
    y = \'"""\'


def g():
    """Short."""


if True:
    class B:
        \'\'\'{PROSE}Es\\x63aped "quotes" here.\'\'\'
        """{PROSE}Second statement."""
        def f(self):
            """{PROSE}Module."""
"""unterminated
'''


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_finds_docstrings_and_no_other_strings(tmp_path, end):
    (tmp_path / "a.py").write_bytes(SOURCE.replace("\n", end).encode())
    (tmp_path / "b.py").write_text("def f(:")
    paths = [str(tmp_path / name) for name in ("a.py", "b.py")]
    found = docstrings.read_docstrings(paths, None)
    endings = [" ".join(document)[-16:] for document in found]
    assert endings == [" matter. Module.", " matter. Raw \\d.", 'd "quotes" here.']


def test_the_cap_is_kept_and_the_order_is_fixed():
    files = docstrings.source_files()
    assert len(files) == len(set(files)) > 500
    spec = "docstrings:max_bytes=60000"
    first, second = list(open_corpus(spec)), list(open_corpus(spec))
    assert first == second
    size = sum(len(s.encode()) for s in itertools.chain.from_iterable(first))
    assert 40_000 < size <= 60_000
    assert len(first) > 30
