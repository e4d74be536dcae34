"""Keeps the outputs that `make docs` got in the files of the notebooks.

`tests/notebooks_test.py` compares what a file says about its cells with its cells.
"""

import hashlib
import pathlib

DOCS = pathlib.Path(__file__).parent


def digest_of(notebook: dict) -> str:
    """Returns the sha256 of the code of a notebook."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # A file has lists of lines, which nbformat joins.
    code = "\0".join("".join(cell["source"]) for cell in cells)
    return hashlib.sha256(code.encode()).hexdigest()


def main():
    """Rewrites every notebook."""
    # Of the extra [docs], which the tests that import this file do without.
    import jupyter_cache
    import nbformat

    cache = jupyter_cache.get_cache(DOCS / "_build/cells")
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        _, notebook = cache.merge_match_into_notebook(
            nbformat.read(path, as_version=4), nb_meta=(), cell_meta=()
        )
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        notebook.metadata["executed"] = {"code_sha256": digest_of(notebook)}
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
