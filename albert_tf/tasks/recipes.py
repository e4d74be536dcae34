"""Hyper-parameters of fine-tuning, as the paper's Table 14 lists them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One row of Table 14 (arXiv:1909.11942, appendix A.4).

    Attributes:
        learning_rate: Peak, reached at the end of warm-up.
        train_batch_size: Examples a step.
        dropout: "ALBERT DR", of hidden states and attention.
        num_train_steps: "TS".
        num_warmup_steps: "WS".
        max_seq_length: "MSL".
    """

    learning_rate: float
    train_batch_size: int
    dropout: float
    num_train_steps: int
    num_warmup_steps: int
    max_seq_length: int = 512


# The classifier's dropout is 0.1 in all of them. RTE, STS-B and MRPC started from a
# model fine-tuned on MNLI; scores are medians of five runs.
RECIPES = {
    "cola": Recipe(1e-5, 16, 0.0, 5336, 320),
    "stsb": Recipe(2e-5, 16, 0.0, 3598, 214),
    "sst2": Recipe(1e-5, 32, 0.0, 20935, 1256),
    "mnli": Recipe(3e-5, 128, 0.0, 10000, 1000),
    "qnli": Recipe(1e-5, 32, 0.0, 33112, 1986),
    "qqp": Recipe(5e-5, 128, 0.1, 14000, 1000),
    "rte": Recipe(3e-5, 32, 0.1, 800, 200),
    "mrpc": Recipe(2e-5, 32, 0.0, 800, 200),
    "wnli": Recipe(2e-5, 16, 0.1, 2000, 250),
    "squad1": Recipe(5e-5, 48, 0.0, 3649, 365, 384),
    "squad2": Recipe(3e-5, 48, 0.0, 8144, 814),
    "race": Recipe(2e-5, 32, 0.1, 12000, 1000),
}
