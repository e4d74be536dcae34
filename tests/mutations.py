"""Checks that the tests notice when a claim of the README is broken.

`python -m tests.mutations` breaks one line at a time in a copy of the checkout and runs
the tests that must fail. Whoever deletes or moves a test runs it afterwards.
`--only=WORD` takes the mutations whose claim has the word, `--all` runs the tests that
`make test` leaves out, too, and `--anywhere` runs every test instead of those named.
"""

import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One line that is wrong.

    Attributes:
        claim: str. Claim of the README or of docs/results.md that no longer holds.
        file: str. Path below the checkout.
        line: str. Text that occurs once in the file.
        wrong: str. Text that replaces it.
        tests: tuple of str. Test files, at least one of which must fail.
    """

    claim: str
    file: str
    line: str
    wrong: str
    tests: tuple[str, ...]


MUTATIONS = [
    Mutation(
        "the loss curve of LAMB is the original's",
        "albert_tf/optimizers/lamb.py",
        "return ratio * update",
        "return update",
        ("tests/optimizers",),
    ),
    Mutation(
        "gradients are clipped by their global norm",
        "albert_tf/optimizers/adamw.py",
        "ops.minimum(1.0 / norm, 1.0 / self.clip_norm)",
        "(1.0 / self.clip_norm)",
        ("tests/optimizers",),
    ),
    Mutation(
        "token ids are the original's",
        "albert_tf/text/normalization.py",
        "    if not keep_accents:\n        text = combining",
        "    if keep_accents:\n        text = combining",
        ("tests/text",),
    ),
    Mutation(
        "token ids in the graph are the same",
        "albert_tf/text/sentencepiece_graph.py",
        "return tf.gather(self._replacements, ids)",
        "return tf.identity(ids)",
        ("tests/text",),
    ),
    Mutation(
        "outputs of every head are those of transformers and the original",
        "albert_tf/layers/attention.py",
        "scale = 1.0 / math.sqrt(self.config.head_size)",
        "scale = 1.0 / self.config.head_size",
        ("tests/models", "tests/layers"),
    ),
    Mutation(
        "masks of pretraining are drawn 80/10/10",
        "albert_tf/data/masking/apply.py",
        "new = xp.where(action < below, vocab.mask_id, new)",
        "new = xp.where(action < random_below, vocab.mask_id, new)",
        ("tests/data/masking",),
    ),
    Mutation(
        "the order of sentences is labelled",
        "albert_tf/data/prepare/pairs.py",
        "        yield 1 - label\n",
        "        yield label\n",
        ("tests/data/prepare",),
    ),
    Mutation(
        "records are the same for any number of processes",
        "albert_tf/data/prepare/blocks.py",
        "rng = KeyedRandom(self.pairs.seed, keyed_random.SPLIT, *key)",
        "rng = KeyedRandom(id(self) % 997, keyed_random.SPLIT, *key)",
        ("tests/data/prepare",),
    ),
    Mutation(
        "a killed run resumes bitwise",
        "albert_tf/training/checkpoints.py",
        'self._values = {"weights": weights, "slots": slots}',
        'self._values = {"weights": weights, "slots": {}}',
        ("tests/training/objectives_test.py", "tests/training/checkpoints_test.py"),
    ),
    Mutation(
        "two replicas train as one device",
        "albert_tf/training/tensorflow/step.py",
        "weights = context.all_reduce(tf.distribute.ReduceOp.SUM, weights)",
        "weights = context.all_reduce(tf.distribute.ReduceOp.MEAN, weights)",
        ("tests/training/tensorflow", "tests/training/objectives_test.py"),
    ),
    Mutation(
        "micro-batches train as whole batches",
        "albert_tf/training/tensorflow/step.py",
        "a if b is None else a + b",
        "a if b is None else b",
        ("tests/training/tensorflow", "tests/training/objectives_test.py"),
    ),
    Mutation(
        "packed rows have the gradients of single ones",
        "albert_tf/layers/attention.py",
        "visible = ops.equal(pack_ids[:, None, :, None], pack_ids[:, None, None, :])",
        "visible = ops.not_equal(pack_ids[:, None, None, :], 0)",
        ("tests/layers", "tests/models", "tests/training/packing_test.py"),
    ),
    Mutation(
        "SQuAD's answers are the original's",
        "albert_tf/tasks/squad_answers.py",
        "fits &= ends - starts < options.max_answer_length",
        "fits &= ends - starts <= options.max_answer_length",
        ("tests/tasks",),
    ),
    Mutation(
        "ELECTRA's labels are 0 where the original token was drawn",
        "albert_tf/models/electra.py",
        "differs = ops.not_equal(drawn, inputs[features.MASK_IDS])",
        "differs = ops.equal(drawn, drawn)",
        ("tests/models",),
    ),
    Mutation(
        "both engines train to the same weights",
        "albert_tf/training/jax/update.py",
        "counts = lax.psum(self.objective.weights(batch), AXIS)",
        "counts = self.objective.weights(batch)",
        ("tests/training/jax",),
    ),
    Mutation(
        "a mistake is one line without a traceback",
        "albert_tf/cli/run.py",
        "        return _report(error)\n",
        "        raise\n",
        ("tests/cli", "tests/tools/before_tensorflow_test.py"),
    ),
    Mutation(
        "the SavedModel answers as the model does",
        "albert_tf/export/signatures.py",
        '"probabilities": activation(logits),',
        '"probabilities": tf.sigmoid(logits),',
        ("tests/export",),
    ),
    Mutation(
        "checkpoints of transformers are read and written",
        "albert_tf/converters/table.py",
        "return array.T if self.transpose else array",
        "return array",
        ("tests/converters",),
    ),
    Mutation(
        "answers are in the order of their rows, for any number of processes",
        "albert_tf/inference/files.py",
        "            first += len(rows)\n",
        "            first += len(rows) - 1\n",
        ("tests/inference",),
    ),
    Mutation(
        "fill_mask gives the most probable tokens",
        "albert_tf/inference/fill_mask.py",
        'np.argsort(-scores, kind="stable")',
        'np.argsort(scores, kind="stable")',
        ("tests/inference", "tests/pretrained_test.py"),
    ),
    Mutation(
        "parameters are counted without building the model",
        "albert_tf/config.py",
        "mlm_head = (D + 1) * E + 2 * E + self.vocab_size",
        "mlm_head = (D + 1) * E + self.vocab_size",
        ("tests/config_test.py",),
    ),
    Mutation(
        "steps that overflow in float16 are skipped",
        "albert_tf/optimizers/loss_scale.py",
        "larger, smaller = value * 2, value / 2",
        "larger, smaller = value * 2, value",
        ("tests/optimizers",),
    ),
]


def mutate(folder: pathlib.Path, mutation: Mutation) -> None:
    """Replaces the line in a copy of the checkout."""
    path = folder / mutation.file
    text = path.read_text(encoding="utf-8")
    count = text.count(mutation.line)
    if count != 1:
        sys.exit(f"{mutation.file}: {count} times instead of once: {mutation.line!r}")
    path.write_text(text.replace(mutation.line, mutation.wrong), encoding="utf-8")


def first_failure(folder: pathlib.Path, tests: tuple[str, ...], marks: str) -> str:
    """Runs tests until one fails; its name, or nothing if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", marks, *tests]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if done.returncode not in (0, 1) and not failed:
        sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return failed[0].split(" - ")[0] if failed else ""


def main() -> None:
    """Tries the mutations that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="word of the claims to break")
    parser.add_argument("--all", action="store_true", help="run slow tests, too")
    parser.add_argument("--anywhere", action="store_true", help="run every test")
    options = parser.parse_args()
    others = ("slow", "peers", "runtimes", "backends", "plan")
    marks = " and not ".join(("not broad", *(() if options.all else others)))
    tracked = ["git", "ls-files", "-z"]
    names = subprocess.run(tracked, cwd=ROOT, capture_output=True, text=True)
    missed = 0
    for mutation in MUTATIONS:
        if options.only not in mutation.claim:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            for name in filter(None, names.stdout.split("\0")):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
            mutate(folder, mutation)
            tests = ("tests",) if options.anywhere else mutation.tests
            caught = first_failure(folder, tests, marks)
        missed += not caught
        print(f"{mutation.claim}: {caught or 'NOT NOTICED'}", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
