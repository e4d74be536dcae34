"""Builds the documentation into a site that needs no network: `make docs`.

Pages are Markdown (MyST). Those in `guides/` and `notebooks/` are executed, all in the
working folder that `workspace.py` makes; `api/` is generated from the docstrings.

Kernels and `albert-tf` start as copies of a process that has imported TensorFlow
(`tests/forked.py`): seventy imports would take longer than what the pages compute.
"""

import json
import os
import pathlib
import runpy
import sys

from docutils import nodes
from myst_nb.core import render
from sphinx.util import inspect

import albert_tf
from tests import forked

DOCS = pathlib.Path(__file__).resolve().parent
PROGRAMS, JUPYTER = DOCS / "_build/programs", DOCS / "_build/jupyter"
WORK = DOCS / "_work"
SHORT = "DOCS_SHORT" in os.environ  # see few_steps.py
# What cells see. A kernel starts in the folder of its page, unless this changes it.
PROFILE = DOCS / "_build/ipython/profile_default"
BEGIN = ["import os", f"os.chdir({str(WORK)!r})"]
EAGER = ["__import__('tensorflow').config.run_functions_eagerly(True)"]
START = f"""c.InteractiveShellApp.exec_lines = {BEGIN + EAGER * SHORT}
c.InteractiveShellApp.hide_initial_ns = True
c.InteractiveShellApp.matplotlib = "inline"  # it has been imported already
c.HistoryManager.enabled = False
c.IPKernelApp.log_level = "ERROR"
c.InlineBackend.figure_formats = {{"retina"}}
"""
WORK.mkdir(exist_ok=True)
PROFILE.mkdir(parents=True, exist_ok=True)
(PROFILE / "ipython_kernel_config.py").write_text(START, encoding="utf-8")
TOOL = DOCS / "few_steps.py" if SHORT else DOCS.parent / "tools/main.py"
forked.write_program(PROGRAMS / "albert-tf", str(TOOL))
KERNEL = [*forked.PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
KERNEL = {"argv": KERNEL, "display_name": "Python 3", "language": "python"}
(JUPYTER / "kernels/python3").mkdir(parents=True, exist_ok=True)
(JUPYTER / "kernels/python3/kernel.json").write_text(json.dumps(KERNEL))
PATH = [str(PROGRAMS), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
os.environ |= {
    forked.OWNER: str(os.getpid()),
    "IPYTHONDIR": str(PROFILE.parent),
    "JUPYTER_PATH": str(JUPYTER),
    "PATH": os.pathsep.join(PATH),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "COLUMNS": "88",
}

project = "albert_tf"
version = release = albert_tf.__version__
author = "the authors of albert_tf"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "_work", "api/templates"]
highlight_language = "none"

# Pages. Links go to headings as on a code host.
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4

# Cells. A cache of results, by their code, keeps a second build short.
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build/cells")
# Of one cell: minutes on a machine that does other work, too.
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_output_stderr = "remove"
nb_merge_streams = True
# That of myst_nb 1.4 begins a new line with every piece, in the middle of a word.
render.coalesce_streams = runpy.run_path(str(DOCS / "keep_outputs.py"))["joined"]

# Docstrings. Single backticks hold names, shapes and values.
default_role = "py:obj"
templates_path = ["api/templates"]
autosummary_generate = True
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
# What Keras and the subclasses call.
INTERNAL = """add_dense add_dropout add_layer_norm add_layers compute_output_shape embed
from_config get_config initial_values load_assets mark_untrained mask_of save_assets
seed_of"""
autodoc_default_options = {"exclude-members": ",".join(INTERNAL.split())}
toc_object_entries_show_parents = "hide"
autodoc_preserve_defaults = True
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Call arguments", "params_style")]

html_theme = "pydata_sphinx_theme"
html_title = "albert_tf"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # a browser may not fetch it from files
html_theme_options = {
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
copyright = "the authors of albert_tf, Apache License 2.0"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def show_commands(app, doctree):
    """Shows a cell that starts with `%%sh` as commands, without that line."""
    for block in doctree.findall(nodes.literal_block):
        first, _, rest = block.astext().partition("\n")
        if first == "%%sh":
            block.rawsource, block.children = rest, []
            block += nodes.Text(rest)
            block["language"] = "sh"


def show_arguments(app, what, name, obj, options, arguments, returned):
    """Takes the arguments of a class from `__init__`, as Keras wraps `__new__`."""
    if what == "class" and not issubclass(obj, Exception):
        found = inspect.signature(obj.__init__, bound_method=True)
        arguments = inspect.stringify_signature(found, show_annotation=False)
        return arguments.replace("mappingproxy({})", "{}"), returned
    return None


def setup(app):
    """Registers what only this site needs."""
    app.connect("doctree-read", show_commands)
    app.connect("autodoc-process-signature", show_arguments)
