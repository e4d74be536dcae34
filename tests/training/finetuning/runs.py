"""Tables and short runs for the tests of fine-tuning."""

import csv
import pathlib
import random

from albert_tf.config import AlbertConfig
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.seeds import finetune

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
SPM_MODEL = GOLDEN / "tokenization" / "spiece.model"
CONFIG = AlbertConfig(
    embedding_size=12,
    hidden_size=24,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=24,
    hidden_dropout_prob=0.1,
    initializer_range=0.2,
)


def write_table(path, count, seed, labels=("bad", "good")):
    """Texts that hold a word which decides the label."""
    rng = random.Random(seed)
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, delimiter="\t")
        writer.writerow(["id", "label", "text"])
        for i in range(count):
            label = rng.choice(labels)
            words = rng.choices(["the", "film", "was", "a", "day"], k=5)
            words.insert(rng.randrange(6), label)
            writer.writerow([i, label, " ".join(words)])
    return str(path)


def run(output_dir, **kwargs):
    defaults = {
        "learning_rate": 5e-3,
        "train_batch_size": 16,
        "num_train_steps": 45,
        "seed": 7,
    }
    settings = FinetuneSettings(output_dir=str(output_dir), **{**defaults, **kwargs})
    return finetune(settings)
