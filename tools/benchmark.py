"""Measures speed, memory and fidelity, side by side with what this package replaces.

Example: `albert-tf benchmark data --output_file=docs/benchmarks/data`
Topics: `data` (text to records against the original's algorithm, peak memory),
`convert` (the largest model), `finetune`, `step`, `serving`, `predict`, `embeddings`
(speeds, in turns with transformers, sentence-transformers and other runtimes; steps
also with other objectives), `vectors` (what training makes of encoders' vectors),
`folding` (what training heals of folded ones), `fidelity` (every step of a recorded run
of the original; docs/fidelity.md), `objectives` (what pretraining objectives are worth;
docs/relatives.md), `pairs` (what models of next sentences know of order, and the
reverse), `sharing` (how encoders with and without sharing learn, also from few labels),
`costs` (memory and time of a step, ALBERT against BERT), `depth` (of layers in a loop
and one after another: time to compile, memory and time of a step), `gpu_run` (a whole
run on a GPU; docs/benchmarks/gpu.md). It needs a checkout.
"""

import contextlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli import start
from albert_tf.cli.flags import define_settings
from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.storage import files

_TOPICS = ("data", "convert", "finetune", "step", "serving", "predict", "fidelity")
_STUDIES = ("objectives", "pairs", "sharing", "vectors", "folding", "costs", "depth")
_TOPICS += ("embeddings", "gpu_run", *_STUDIES)
_TOPIC = flags.DEFINE_enum("topic", "data", _TOPICS, "What to measure.")
_OUTPUT = flags.DEFINE_string(
    "output_file",
    None,
    "Also write <output_file>.json and .md, and .png for fidelity, objectives, pairs "
    "and sharing.",
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing files.")
flags.DEFINE_string(
    "input_file",
    "docstrings:",
    "data, serving, predict, embeddings, studies: text, as for create_pretraining_data",
)
flags.DEFINE_string(
    "spm_model_file",
    "",
    "SentencePiece model. Default, except for finetune: one trained on the text.",
)
flags.DEFINE_integer(
    "max_seq_length", 512, "data, serving, predict, embeddings: tokens of a text."
)
flags.DEFINE_string(
    "preset",
    "",
    "All but data, fidelity and objectives: model size. Default: albert_xxlarge_v2 for "
    "convert, albert_base_v2 for the others.",
)
flags.DEFINE_string(
    "train_file",
    "",
    "finetune: table of texts and labels, such as SST-2's train.tsv. vectors: table of "
    "pairs to train on, with the columns text and positive.",
)
for _name, _default in (("text_column", "sentence"), ("label_column", "label")):
    flags.DEFINE_string(_name, _default, "finetune: column of the table.")
flags.DEFINE_bool(
    "quoting", False, "finetune: whether quotes enclose cells; not in GLUE's files."
)
flags.DEFINE_integer("train_batch_size", 32, "finetune: examples per step.", 1)
flags.DEFINE_integer(
    "steps", 12, "finetune, step, serving, costs, depth: steps of each contestant.", 2
)
flags.DEFINE_integer(
    "num_texts", None, "Texts of mixed lengths: serving 64, predict 10,000.", 8
)
flags.DEFINE_bool("jit_compile", False, "step, depth: whether XLA compiles our step.")
flags.DEFINE_bool("fuse_elementwise", True, "step, depth: as for pretrain.")
flags.DEFINE_enum(
    "precision",
    "bfloat16",
    ("bfloat16", "float32"),
    "finetune, step: of both contestants. depth: of the step.",
)
with contextlib.suppress(ImportError):  # `main` says that there is no checkout
    from benchmarks.topic_settings import TopicSettings

    define_settings(TopicSettings)


def main() -> None:
    """Measures, prints the table, writes the files."""
    if _TOPIC.value in ("step", "depth"):
        start.use_onednn(flags.FLAGS.precision)
    elif _TOPIC.value in ("serving", "predict", "embeddings", *_STUDIES):
        start.use_onednn("float32")
    try:
        from benchmarks import report, topics
    except ImportError:
        raise UsageError("benchmark: needs a checkout of the repository") from None
    from albert_tf import environment

    stem = (_OUTPUT.value or "").removesuffix(".json").removesuffix(".md")
    written = [f"{stem}.{suffix}" for suffix in ("json", "md", "png") if stem]
    for path in written:
        files.make_folder(path.rpartition("/")[0] or ".")
        files.check_new("output_file", path, _OVERWRITE.value)
    about = environment.machine()
    save = lambda found: stem and report.write(stem, found, about)  # noqa: E731
    measured = topics.measure(_TOPIC.value, flags.FLAGS.flag_values_dict(), save)
    print(report.to_markdown(measured, about), end="")
    save(measured)


if __name__ == "__main__":
    if sys.argv[1:2] and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"--topic={sys.argv[1]}"
    run(main)
