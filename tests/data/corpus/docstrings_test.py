"""The embedded corpus of docstrings."""

import itertools

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


def test_reads_without_importing_and_without_repeats(tmp_path):
    prose = "This is a sentence of some length about the matter. " * 5
    source = (
        f'"""{prose}Module."""\nraise RuntimeError\n'
        f'if True:\n    class A:\n        """{prose}Class."""\n'
        f'        def f(self):\n            """{prose}Module."""\n'
        'def g():\n    """Short."""\n'
    )
    path = tmp_path / "a.py"
    path.write_text(source)
    (tmp_path / "b.py").write_text("def f(:")
    found = docstrings.read_docstrings([str(path), str(tmp_path / "b.py")], None)
    assert [document[0][-7:] for document in found] == ["Module.", " Class."]


def _read(tmp_path, source):
    path = tmp_path / "a.py"
    path.write_bytes(source.encode())
    return ["\n".join(d) for d in docstrings.read_docstrings([str(path)], None)]


def test_finds_docstrings_and_no_other_strings(tmp_path):
    prose = "This is a sentence of some length about the matter. " * 5
    source = f'''# It's "a" comment with """ quotes
"""{prose}Module."""

x = """{prose}Assigned."""


def f(
    a: str = "#:\\"\\\\",
):  # noqa: x
    # A comment between.

    r"""{prose}Raw \\d."""
    call("""{prose}Argument.""")


class A: pass


async def g(a={{"'": 1}}) -> {{"b": ''}}:
    "One line."
    y = '"""'


class B:
    \'\'\'{prose}Es\\x63aped "quotes" here.\'\'\'
    """{prose}Second statement."""
"""unterminated
'''
    for text in (source, source.replace("\n", "\r\n")):
        endings = [text[-16:] for text in _read(tmp_path, text)]
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
