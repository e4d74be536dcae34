"""The embedded corpus of docstrings."""

import itertools

from albert_tf.data import docstrings
from albert_tf.data.corpus import open_corpus

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


def test_the_cap_is_kept_and_the_order_is_fixed():
    files = docstrings.source_files()
    assert len(files) == len(set(files)) > 500
    spec = "docstrings:max_bytes=60000"
    first, second = list(open_corpus(spec)), list(open_corpus(spec))
    assert first == second
    size = sum(len(s.encode()) for s in itertools.chain.from_iterable(first))
    assert 40_000 < size <= 60_000
    assert len(first) > 30
