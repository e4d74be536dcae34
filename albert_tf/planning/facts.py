"""Computes sizes and costs of a model without running it, next to the paper's numbers.

Sources: ALBERT (arXiv:1909.11942), Tables 1, 3, 4, 12 and 2.
"""

import dataclasses
import math
from typing import Any, NamedTuple

from albert_tf.config import PRESETS, AlbertConfig, activations, generator_config
from albert_tf.errors import require
from albert_tf.settings import check_fields, setting

MILLION = 1e6
# Entries of `describe` in bytes -> their titles in a table.
_SIZES = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "all_reduced": "all-reduced",
    "activations": "activations",
    "activations_recomputed": "if recomputed",
}
# Table 1, in millions.
PAPER_PARAMETERS = {
    "bert_base": 108,
    "bert_large": 334,
    "albert_base": 12,
    "albert_large": 18,
    "albert_xlarge": 60,
    "albert_xxlarge": 235,
}
# Table -> embedding size -> sharing mode -> parameters of base.
PAPER_BASE = {
    "Table 3": {
        64: {"none": 87, "all": 10},
        128: {"none": 89, "all": 12},
        256: {"none": 93, "all": 16},
        768: {"none": 108, "all": 31},
    },
    "Table 4": {
        768: {"all": 31, "attention": 83, "ffn": 57, "none": 108},
        128: {"all": 12, "attention": 64, "ffn": 38, "none": 89},
    },
}
INCONSISTENCIES = (
    "xxlarge has 235M parameters in Table 1, 233M in the text and 225M in Table 12; "
    "the released model has 222.6M (223.2M with its heads)",
    "xlarge has 60M in Tables 1 and 12; the released model has 58.7M",
    "base with all shared has 81.6 on MNLI in Tables 2, 3 and 7, but 82.0 in 4 and 5",
    "E=128 without sharing averages 81.7 in Table 3, but 81.6 in Table 4",
    "Tables 3 and 4 truncate where nothing is shared (89.65M is 89M, or the pooler is "
    "left out: 89.06M) and round where everything is (11.68M is 12M)",
)


@dataclasses.dataclass(frozen=True)
class Training:
    """A training on one device, whose time and price are estimated.

    Attributes:
        num_train_tokens: Tokens that a training reads, in all passes. Its FLOPs (those
            of three forward passes), hours and cost are then shown, too.
        device_teraflops: Peaks of devices to compare, in TFLOP/s at the precision of
            the training.
        utilization: Share of the peak that a training reaches. An assumption: it
            differs by model, batch and device.
        cost_per_hour: Price of an hour of the machine. What training costs is then
            shown, too, and in a report what the steps that are left will cost at the
            last speed.
    """

    num_train_tokens: float = setting(above=0)
    device_teraflops: tuple[str, ...] = setting()
    utilization: float = setting(0.3, above=0, maximum=1)
    cost_per_hour: float | None = setting(None, above=0)

    def __post_init__(self):
        check_fields(self)
        peaks = self.device_teraflops
        fit = [p.replace(".", "", 1).isdecimal() and float(p) > 0 for p in peaks]
        require(fit and all(fit), "--device_teraflops must be decimals above 0", peaks)

    def costs(self, flops_per_token: int) -> dict[str, Any]:
        """Returns FLOPs, and by device hours and, with a price, the cost.

        `flops_per_token` are the forward pass's; the backward pass has twice as many.
        """
        flops = 3 * flops_per_token * self.num_train_tokens
        in_hour, price = 3600e12 * self.utilization, self.cost_per_hour
        hours = {p: flops / (float(p) * in_hour) for p in self.device_teraflops}
        cost = {peak: price * time for peak, time in hours.items() if price}
        return {"training_flops": flops, "hours": hours, "cost": cost}


class Comparison(NamedTuple):
    """One of our numbers next to the paper's.

    Args:
        paper: int. Millions of parameters.
    """

    what: str
    ours: int
    paper: int

    @property
    def agrees(self) -> bool:
        """Whether the two differ by less than a million or 1.5%.

        The paper sometimes rounds and sometimes truncates, and does not say whether it
        counts the pooler (0.6M in base).
        """
        difference = abs(self.ours / MILLION - self.paper)
        return difference < 1 or difference / self.paper < 0.015


def describe(
    config: AlbertConfig,
    batch_size: int = 32,
    sequence_length: int | None = None,
    bytes_per_value: int = 4,
    training: Training | None = None,
) -> dict[str, Any]:
    """Returns sizes and costs of one model, with 2 or 4 bytes per value.

    Returns:
        dict with `parameters` by part, `total`, `with_heads` (masked LM and sentence
        order, or ELECTRA's discriminator head), `generator` (parameters that
        ELECTRA's generator of the paper's size adds where embeddings are tied, else 0),
        `bert` (the large one for models wider than base), `times_fewer`
        parameters than that one, `flops_per_token`, and bytes of pretraining on one
        device: `weights`, `gradients` and `optimizer` (the two slots of AdamW or LAMB),
        all in float32 under every precision; `all_reduced`, what each device
        contributes to the sum over devices in a step: every gradient in full,
        including the token table's, but without a few other sums; `activations` and
        `activations_recomputed`, of the discriminator only; with a training, the
        entries of `Training.costs`, also of the discriminator.
    """
    length = sequence_length or config.max_position_embeddings
    parameters, total = config.parameter_counts(), config.num_parameters()
    if not config.has_pooler:
        parameters["pooler"] = 0
    is_electra = config.family == "electra"
    head = "discriminator" if is_electra else "pretraining"
    with_heads = config.num_parameters(head)
    generator = _generator(config) if is_electra else 0
    trained = with_heads + generator
    bert = "bert_large" if config.hidden_size > 768 else "bert_base"
    fewer = AlbertConfig.from_preset(bert).num_parameters() / total
    return {
        "parameters": parameters,
        "total": total,
        "with_heads": with_heads,
        "generator": generator,
        "bert": bert,
        "times_fewer": round(fewer, 2),
        "flops_per_token": config.flops_per_token(length),
        "weights": 4 * trained,
        "gradients": 4 * trained,
        "optimizer": 2 * 4 * trained,
        "all_reduced": 4 * trained,
        "activations": bytes_per_value * activations(config, batch_size, length),
        "activations_recomputed": bytes_per_value
        * activations(config, batch_size, length, recompute=True),
        **(training.costs(config.flops_per_token(length)) if training else {}),
    }


def _generator(config: AlbertConfig) -> int:
    """Counts what ELECTRA's tied generator adds: Table 6 (arXiv:2003.10555)."""
    size = 1 / 3 if config.hidden_size == 768 else 0.25
    # The number of heads, which may not divide its width, does not affect counts.
    generator = generator_config(config.replace(num_attention_heads=1), size, 1.0)
    tied = 2 * config.embedding_size + sum(
        count
        for part, count in config.parameter_counts().items()
        if part in ("token_embeddings", "position_embeddings", "segment_embeddings")
    )
    return generator.num_parameters("masked_lm") - tied


def comparisons() -> list[Comparison]:
    """Compares every number of parameters in the paper that can be computed."""
    rows = []
    for name, paper in PAPER_PARAMETERS.items():
        preset = name if name in PRESETS else f"{name}_v2"
        # The paper's BERT has ALBERT's vocabulary of 30,000.
        config = AlbertConfig.from_preset(preset, vocab_size=30000)
        rows.append(Comparison(f"Table 1: {name}", config.num_parameters(), paper))
    base = AlbertConfig.from_preset("albert_base_v2")
    for name, sizes in PAPER_BASE.items():
        for size, modes in sizes.items():
            for mode, paper in modes.items():
                what = f"{name}: base, E={size}, sharing={mode}"
                config = base.replace(embedding_size=size, sharing=mode)
                rows.append(Comparison(what, config.num_parameters(), paper))
    return rows


def table(configs: dict[str, AlbertConfig], **options) -> str:
    """Returns a text table of several models; `options` as for `describe`."""
    rows = {name: describe(config, **options) for name, config in configs.items()}
    parts = list(dict.fromkeys(p for row in rows.values() for p in row["parameters"]))
    counts, costs, trained = {}, {}, {}
    for name, row in rows.items():
        paper = PAPER_PARAMETERS.get(name.removesuffix("_v1").removesuffix("_v2"))
        agrees = "-"
        if paper:
            agrees = _yes_or_no(Comparison(name, row["total"], paper))
        cells = [row["parameters"].get(part, 0) for part in parts]
        cells += [row["total"], row["with_heads"], row["generator"]]
        texts = [f"{cell / MILLION:.2f}" for cell in cells]
        fewer = f"{row['times_fewer']:.1f}x {row['bert'].removeprefix('bert_')}"
        counts[name] = [*texts, fewer, str(paper or "-"), agrees]
        flops = f"{row['flops_per_token'] / MILLION:,.1f}"
        costs[name] = [flops, *(_bytes(row[size]) for size in _SIZES)]
        for peak in row.get("hours", ()):
            cells = [f"{row[key][peak]:,.1f}" for key in ("hours", "cost") if row[key]]
            flops = f"{row['training_flops']:.1e}"
            trained[f"{name}, {peak} TFLOP/s"] = [flops, *cells]
    names = [part.replace("_embeddings", "s").split("_")[-1] for part in parts]
    names += ["total", "with heads", "generator", "BERT has", "paper", "agrees"]
    lines = ["parameters (millions)", *_lines("", names, counts)]
    names = ["MFLOP/token", *_SIZES.values()]
    title = "cost of a forward pass, memory, and bytes that a device sums with others"
    lines += ["", title, *_lines("", names, costs)]
    if training := options.get("training"):
        title = f"training at {training.utilization:.0%} of the peak (an assumption)"
        names = ["FLOPs", "hours", "cost"][: 3 if training.cost_per_hour else 2]
        lines += ["", title, *_lines("", names, trained)]
    return "\n".join(lines)


def paper_table() -> str:
    """Returns a text table of the paper's numbers and ours, and its contradictions."""
    rows = {
        row.what: [f"{row.ours / MILLION:.2f}M", f"{row.paper}M", _yes_or_no(row)]
        for row in comparisons()
    }
    lines = _lines("the paper's parameters", ["ours", "paper", "agrees"], rows)
    return "\n".join(
        [*lines, "", "where the paper contradicts itself or the releases:"]
        + [f"* {line}" for line in INCONSISTENCIES]
    )


def _yes_or_no(row: Comparison) -> str:
    return "yes" if row.agrees else "no"


def _lines(title: str, names: list[str], rows: dict[str, list[str]]) -> list[str]:
    """Returns a table with the names of its columns above it."""
    width = max(map(len, rows))
    places = [max(10, len(name)) + 2 for name in names]
    return [
        f"{what:<{width}}"
        + "".join(f"{cell:>{n}}" for cell, n in zip(cells, places, strict=True))
        for what, cells in {title: names, **rows}.items()
    ]


def _bytes(count: int) -> str:
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    step = min(len(units) - 1, int(math.log2(max(1, count)) // 10))
    return f"{count / 1024**step:.1f} {units[step]}"
