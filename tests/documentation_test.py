"""The pages mean what they say: their commands and their Python are run.

They are run verbatim, except for long ones, which get the flags in `SHORTER`, too.
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

import albert_tf
from albert_tf.cli import original_flags
from albert_tf.data.corpus import corpus
from tests import documents, forked
from tests.commands import flags_of_commands
from tests.tiny import SPIECE, make_model

ROOT = documents.ROOT
ITEMS = [item for page in documents.pages() for item in documents.shown(page)]
# What is not run as it stands, by the page, and why. The flags `--data_dir=`, ... name
# official files of a task.
NOT_RUN = [
    (".*", r"make demo", "make test-all runs it with fewer steps"),
    (".*", r"make test\b.*|\.ci/run|.* -m pytest .*", "runs these tests"),
    (".*", r"make (lint|format|lock)|.*pre-commit install", "changes the checkout"),
    (".*", r"make (docs|notebooks|linkcheck)", "tests/docs looks at what it made"),
    (".*", r"pip install .*", "installs packages"),
    (".*", r"(albert-tf |python tools/)<verb>.*|albert-tf \w+", "names of verbs"),
    (".*", r"albert-tf benchmark .*", "tests/benchmarks, tests/peers run small ones"),
    (".*", r".*(--data_dir=|=SST-2/|glue/diagnostic/|--prediction_dir=).*", "has data"),
    (".*", r"albert-tf plan .*", "tests/planning compiles tiny models, if at all"),
    (".*", r"dask .*|.*--runner=.*", "needs Apache Beam"),
    (".*", r".*import optuna.*", "needs Optuna"),
    (r"docs/tpu\.md", r"(?!albert-tf ).*", "needs a TPU in the cloud"),
    (r"docs/training\.md", r".*runs/h100.*", "needs a GPU"),
    (r"docs/benchmarks/folding\.md", r".*", "needs a released model and SST-2"),
    (r"docs/claims\.md", r"albert-tf inspect .*", "needs the models of a study"),
    (r"docs/guides/(?!my_language).*", r".*", "needs a hub, a bucket or a server"),
    (r"docs/serving\.md", r"(curl|docker|kubectl) .*", "pages_test asks one of ours"),
]


def is_run(item):
    """Returns whether neither `make docs` runs it nor the table says why not."""
    return not item.cell and not any(
        re.fullmatch(page, item.page) and re.fullmatch(text, item.text, re.S)
        for page, text, _ in NOT_RUN
    )


RUN = list(filter(is_run, ITEMS))
# The others are run by `make test-broad`: the demo and the cells of pages, which are
# always run, show the same steps.
QUICK = "README.md"
# A page that looks at what another one has left, which comes before it.
GOES_ON = {"docs/reports.md": "docs/commands.md"}
# Flags of the original that the help does not list: they say what to use instead.
NOT_LISTED = {*original_flags._REFUSED, "do_train", "do_eval", "do_predict"}
# Of the variable XLA_FLAGS.
OF_XLA = {"xla_gpu_deterministic_ops", "xla_gpu_enable_cublaslt", "xla_gpu_ftz"}
# What a block of Python prints, by a line that occurs in it.
PRINTED = {
    "fill_mask(": ("token_str", "11683584"),
    "model.fit(": ("'label': ",),
    'Classifier.from_pretrained("runs/films': ("'label': '", "[[", "]]"),
    "QuestionAnswerer": ("'answer': ", "[{", "}]"),
}
# Flags that end long commands of a page early, appended by page and verb.
SHORTER = {
    "docs/guides/my_language.md": {
        "train_tokenizer": "--vocab_size=500",
        "pretrain": "--sequence_length_schedule=32:2:4,64:2:4 --num_train_steps=4 "
        "--num_warmup_steps=1 --num_decay_steps=2 --max_eval_steps=1",
        "finetune": "--num_train_steps=2 --num_warmup_steps=1 --num_seeds=1",
    },
}


@pytest.fixture(scope="module")
def known_flags():
    found = flags_of_commands(aliases=True)
    return {verb: {*own, "help", "helpfull", "debug"} for verb, own in found.items()}


def verb_of(command):
    """Returns the verb of `albert-tf verb` or `python tools/verb.py`, if it is one."""
    match = re.search(r"(?:^|\n *)(?:albert-tf|python tools/)\s*(\w+)", command)
    return match[1] if match else None


def test_the_pages_show_commands():
    pages = {item.page for item in RUN}
    assert {"README.md", "docs/data.md", "docs/tpu.md"} <= pages
    shows = [item.page for item in RUN if item.kind == "python"]
    assert {"README.md", "docs/python.md"} <= set(shows)
    verbs = {(item.page, verb_of(item.text)) for item in RUN}
    assert {(page, verb) for page, own in SHORTER.items() for verb in own} <= verbs


@pytest.mark.parametrize("item", [*ITEMS, *documents.examples()], ids=str)
def test_flags_exist(item, known_flags):
    verb = verb_of(item.text) if item.kind == "sh" else None
    if verb is None:
        return
    assert verb in known_flags
    given = {w.split("=")[0] for w in documents.words(item.text) if w.startswith("--")}
    names = {name.removeprefix("--") for name in given}
    unknown = {n for n in names if not {n, n.removeprefix("no")} & known_flags[verb]}
    assert not unknown, f"{item}: {verb} has no flags {sorted(unknown)}"


@pytest.mark.parametrize(
    "page", documents.pages(), ids=lambda page: str(page.relative_to(ROOT))
)
def test_flags_in_sentences_exist(page, known_flags):
    known = set.union(*known_flags.values()) | {"help"} | NOT_LISTED | OF_XLA
    text = page.read_text(encoding="utf-8")
    spans = re.findall(r"`([^`\n]*--\w[^`\n]*)`", text)
    named = {
        name
        for span in spans
        if not span.startswith(("pip ", "python -c", "albert-tf", "python tools"))
        for name in re.findall(r"(?<![\w=-])--(\w+)", span)
    }
    unknown = {n for n in named if not {n, n.removeprefix("no")} & known}
    assert not unknown, f"{page}: no command has the flags {sorted(unknown)}"


MAKE = sorted({i.text.split()[1] for i in ITEMS if i.text.startswith("make ")})


@pytest.mark.parametrize("target", MAKE)
def test_make_has_the_target(target):
    result = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def prepare(folder):
    """Writes what the pages take for granted: text, tables, models, configs/."""
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "tools").symlink_to(ROOT / "tools")
    (folder / "text").mkdir()
    with open(folder / "text/a.txt", "w", encoding="utf-8") as f:
        for document in corpus.open_corpus("docstrings:max_bytes=300000", "auto"):
            f.write("\n".join(document) + "\n\n")
    rows = [f"a {label} film\t{label}\n" for label in ("bad", "good")] * 8
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("text\tlabel\n" + "".join(rows))
    sizes = {"max_position_embeddings": 64, "initializer_range": 0.02}
    model = make_model("pretraining", **sizes)
    tokenizer = albert_tf.AlbertTokenizer(SPIECE)
    # Stands for the model of a command that is not run.
    answering = make_model("question_answering", **sizes)
    (folder / "runs").mkdir()
    albert_tf.save_pretrained(answering, folder / "runs/squad1", tokenizer=tokenizer)
    ours = folder / "demo_output/pretrain/model"
    ours.parent.mkdir(parents=True)
    albert_tf.save_pretrained(model, ours, tokenizer=tokenizer)
    albert_tf.save_pretrained(model, folder / "albert_base", format="tf1")
    shutil.copy(SPIECE, folder / "albert_base/30k-clean.model")
    write_articles(folder / "wiki_de")


def write_articles(folder):
    """Writes articles as WikiExtractor has them, of people and of other things."""
    folder.mkdir()
    with open(folder / "wiki_00", "w", encoding="utf-8") as f:
        texts = corpus.open_corpus("docstrings:max_bytes=300000", "auto")
        for number, sentences in enumerate(texts):
            born = "(* 1. Mai 1900 in Ulm)" if number % 2 else ""
            words = " ".join(re.findall(r"\w+", " ".join(sentences))[:40])
            others = f"Der Mann sah die Stadt an dem Fluss. {words:120}.\n" * 12
            head = f'<doc id="{number}" url="" title="{number}">\n{number}\n\n'
            f.write(f"{head}Das ist {number} {born}.\n\n{others}</doc>\n")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Returns a prepared folder for each page; its commands build on each other."""
    made = {}

    def folder_of(page):
        if page not in made:
            made[page] = tmp_path_factory.mktemp("page")
            prepare(made[page])
            programs = made[page] / ".bin"
            forked.write_program(programs / "albert-tf", f"{ROOT}/tools/main.py")
            forked.write_program(programs / "python")
        return made[page]

    return folder_of


@pytest.mark.slow
@pytest.mark.parametrize(
    "item",
    [
        pytest.param(i, marks=[] if i.page == QUICK else [pytest.mark.broad])
        for i in RUN
    ],
    ids=str,
)
def test_runs_as_shown(item, folders):
    folder = folders(GOES_ON.get(item.page, item.page))
    if item.kind == "python":
        pathlib.Path(folder / "block.py").write_text(item.text, encoding="utf-8")
    shorter = SHORTER.get(item.page, {}).get(verb_of(item.text), "")
    shown = f"{item.text} {shorter}".strip()
    command = "python block.py" if item.kind == "python" else shown
    path = f"{folder / '.bin'}{os.pathsep}{os.environ['PATH']}"
    # Readers have not chosen a backend.
    own = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=own | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{item}: {item.text}\n{result.stderr[-3000:]}"
    for line, expected in PRINTED.items():
        if item.kind == "python" and line in item.text:
            assert all(part in result.stdout for part in expected)
