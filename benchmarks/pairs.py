"""Shows whether next sentence prediction can replace sentence order prediction.

As in Table 5 of the paper (arXiv:1909.11942), encoders learn masked words and nothing
about pairs, next sentences (NSP) or sentence order (SOP), and the head of each is
tested on the held-out records of both. Both tasks have the same two answers: 0 for
consecutive text, 1 for another document (NSP) or swapped segments (SOP).
"""

import dataclasses
from typing import Any

from benchmarks import claims
from benchmarks.held_out import held_out_score
from benchmarks.objectives import each
from benchmarks.objectives_jobs import WITHOUT_PAIRS, Study
from benchmarks.objectives_picture import Panel, draw_study, points
from benchmarks.objectives_report import to_table, verdicts
from benchmarks.report import Report, Row

# Objectives, and their names in the paper.
LEARNED = {"albert": "SOP", "bert": "NSP", WITHOUT_PAIRS: "none"}
RECORDS = {"bert": "NSP", "albert": "SOP"}
SCALES = {
    "full": dataclasses.replace(
        claims.full_scale(4_500_000, num_hidden_layers=2), num_seeds={"all": 3}
    ),
    "small": claims.SMALL,
}
_NOTES = (
    "Accuracies are means over pretraining seeds with the 95% interval of Student's t "
    "distribution. Accuracies on pairs are balanced (the mean over both labels), so "
    "that a constant answer or a coin scores 0.5. Own head: the head that was trained "
    "with the encoder; the head of `none` has its initial weights, which corresponds "
    "to the paper's random guess. Fitted head: logistic regression on the pooled "
    "outputs of the frozen encoder, for training records of the task. MLM: accuracy "
    "on held-out records of the kind that the model read.",
)


def run(study: Study) -> Report:
    """Computes the missing parts of a study, and reports on all of it.

    Args:
        study: `Study`. Its objectives are in `LEARNED`.

    Raises:
        UsageError: If the folder holds another study.
        DataError: If the text cannot be read.
    """
    models = claims.train_all(study)
    asked = [
        (one.model, records, records in RECORDS)
        for one in models
        for records in dict.fromkeys((*RECORDS, one.run.objective))
    ]
    calls = [(held_out_score, (study, *given)) for given in asked]
    answers = zip(asked, each(calls, "held-out records"), strict=True)
    found = {given[:2]: one for given, one in answers}
    scores = [
        {
            "learned": LEARNED[one.run.objective],
            **one.cost(),
            "MLM": found[one.model, one.run.objective]["mlm"],
            **{
                f"{name} records, {head} head": found[one.model, records][key]
                for head, key in (("own", "pairs"), ("fitted", "fitted"))
                for records, name in RECORDS.items()
            },
        }
        for one in models
    ]
    return _report(scores)


def _report(scores: list[dict[str, Any]]) -> Report:
    columns = [name for name in scores[0] if name not in ("learned", "seed")]
    table = {
        name: {
            column: claims.cell(
                column, [one[column] for one in scores if one["learned"] == name]
            )
            for column in columns
        }
        for name in LEARNED.values()
    }
    lines, asked = [*to_table(table), ""], columns[2:]
    lines += verdicts({c: {name: table[name][c] for name in table} for c in asked})
    return Report(
        "What a model of next sentences knows of sentence order",
        [
            Row(f"{name}, {column}", table[name][column].mean, "")
            for name in LEARNED.values()
            for column in asked
        ],
        series={"scores": scores},
        picture=draw_study([_panels(scores)]),
        notes=_NOTES,
        text="\n".join(lines),
    )


def _panels(scores: list[dict[str, Any]]) -> list[Panel]:
    ticks = dict(enumerate(LEARNED.values()))
    panels = []
    for head in ("own", "fitted"):
        curves = {}
        for number, name in enumerate(RECORDS.values()):
            # Next to each other, so that neither hides the other.
            curves[f"on {name} records"] = points(
                {
                    place + 0.12 * (2 * number - 1): [
                        score[f"{name} records, {head} head"]
                        for score in scores
                        if score["learned"] == learned
                    ]
                    for place, learned in ticks.items()
                }
            )
        panels.append(
            Panel(
                f"{head} head",
                "balanced accuracy",
                curves,
                {"chance": 0.5},
                x="learned with masked words",
                ticks=ticks,
                joined=False,
            )
        )
    return panels


def make_study(folder: str, input_file: str, tokenizer: str, scale: str) -> Study:
    """Returns the study of a scale: `full`, or `small` to test that it runs."""
    return Study(folder, input_file, tokenizer, {}, tuple(LEARNED), SCALES[scale])
