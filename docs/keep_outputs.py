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


def joined(outputs: list[dict]) -> list[dict]:
    """Returns outputs without stderr; text that came in pieces is one output."""
    kept = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        if kept and output.get("name") == kept[-1].get("name") == "stdout":
            kept[-1]["text"] += output["text"]
        else:
            kept.append(output)
    return kept


def main():
    """Rewrites every notebook."""
    # Of the extra [docs], which the tests that import this file do without.
    import jupyter_cache
    import nbformat

    cache = jupyter_cache.get_cache(DOCS / "_build/cells")
    # The last one first: if it is not there, the build has not ended.
    for path in sorted((DOCS / "notebooks").glob("*.ipynb"), reverse=True):
        _, notebook = cache.merge_match_into_notebook(
            nbformat.read(path, as_version=4), nb_meta=(), cell_meta=()
        )
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = joined(cell.outputs)
        notebook.metadata["executed"] = {"code_sha256": digest_of(notebook)}
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
