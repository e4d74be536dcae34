"""Pictures and tables of the results of `inference.inspection`."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.figure import new_figure, to_png
from albert_tf.reports.figures import plain_name
from albert_tf.reports.samples import show_masks

# Okabe and Ito's colors, which people with any color vision can tell apart; lines also
# differ in their marks.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS = "osD^vPX"
_MAX_MASKS = 8  # columns of a picture of answers
_MAX_NAME = 44


def draw(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of all pictures of some models.

    `results` come from `inspect_model`. Pictures of one model have its number, counted
    from 1, in their names.
    """
    yield "layers.png", draw_transitions(results)
    for number, result in enumerate(results, 1):
        if result["answers"]:
            yield f"answers_{number}.png", draw_answers(result)
        for layer in result["attention"]:
            yield f"attention_{number}_layer_{layer}.png", draw_attention(result, layer)
        yield f"path_{number}.png", draw_path(result)


def draw_transitions(results: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns Figure 1 of the paper: a line for each model."""
    figure = new_figure(10, 4.5, layout="constrained")
    plots = figure.subplots(1, 2)
    shown = {"l2_distance": "L2 distance", "degrees": "angle (degrees)"}
    for axes, (key, title) in zip(plots, shown.items(), strict=True):
        for i, result in enumerate(results):
            values = [one[key] for one in result["transitions"]]
            axes.plot(
                range(1, len(values) + 1),
                values,
                color=_COLORS[i % len(_COLORS)],
                marker=_MARKS[i % len(_MARKS)],
                linestyle=("-", "--", ":")[i % 3],
                label=f"{i + 1}: {_short(result)}",
            )
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="layer", ylabel=title, ylim=(0, None))
        axes.grid(alpha=0.3)
    figure.suptitle("Input against output of each layer, mean over tokens")
    handles, labels = plots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", fontsize=8)
    return to_png(figure)


def draw_answers(result: Mapping[str, Any]) -> bytes:
    """Returns the best token for each mask after every layer, shaded by probability."""
    columns = [
        (one["text"], [state[0] for state in mask])
        for one in result["answers"]
        for mask in one["masks"]
    ][:_MAX_MASKS]
    scores = np.array([[score for _, score in best] for _, best in columns]).T
    figure = new_figure(
        2.2 + 1.5 * len(columns), 2.2 + 0.28 * len(scores), layout="constrained"
    )
    axes = figure.subplots()
    image = axes.imshow(scores, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    figure.colorbar(image, ax=axes, label="probability")
    for (layer, column), score in np.ndenumerate(scores):
        token = columns[column][1][layer][0] or "▁"
        color = "black" if score > 0.5 else "white"
        text = plain_name(token, layer, 14)
        axes.text(
            column, layer, text, ha="center", va="center", fontsize=8, color=color
        )
    # Divided so that no dollar is cut from the backslash that `plain_name` adds.
    names = [plain_name(text, i, 72) for i, (text, _) in enumerate(columns)]
    names = [textwrap.wrap(name.replace(r"\$", "$"), 18)[:4] for name in names]
    names = ["\n".join(lines).replace("$", r"\$") for lines in names]
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_yticks(range(len(scores)))
    axes.set(ylabel="layer (0: embeddings)")
    figure.suptitle(f"Answer of the masked-LM head after each layer\n{_short(result)}")
    return to_png(figure)


def draw_attention(result: Mapping[str, Any], layer: str) -> bytes:
    """Returns the attention maps of all heads of a layer."""
    maps, tokens = np.array(result["attention"][layer]), _tokens(result)
    columns = min(len(maps), 4 if len(maps) <= 16 else 8)
    lines, size = -(-len(maps) // columns), 2.3
    figure = new_figure(columns * size + 1, lines * size + 1, layout="constrained")
    plots = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for head, axes in enumerate(plots.flat):
        if head >= len(maps):
            axes.axis("off")
            continue
        image = axes.imshow(maps[head], cmap="cividis", vmin=0, vmax=maps.max())
        axes.set_title(f"head {head + 1}", fontsize=9)
        axes.set_xticks(range(len(tokens)), tokens, fontsize=6, rotation=90)
        axes.set_yticks(range(len(tokens)), tokens, fontsize=6)
    figure.colorbar(image, ax=plots, shrink=0.6, label="attention of row to column")
    figure.suptitle(f"Attention, layer {layer}\n{_short(result)}")
    return to_png(figure)


def draw_path(result: Mapping[str, Any]) -> bytes:
    """Returns the path of each token through the layers, in a plane."""
    path, tokens = np.array(result["path"]), _tokens(result)
    figure = new_figure(8, 6.5, layout="constrained")
    axes = figure.subplots()
    for points, token in zip(path.transpose(1, 0, 2), tokens, strict=True):
        axes.plot(*points.T, color="gray", lw=0.8, zorder=1)
        # At the embeddings, because the last states of tokens may be close together.
        axes.annotate(
            token, points[0], xytext=(4, 3), textcoords="offset points", fontsize=8
        )
    layers = np.repeat(np.arange(len(path)), len(tokens))
    points = axes.scatter(*path.reshape(-1, 2).T, c=layers, cmap="cividis", s=16)
    figure.colorbar(points, ax=axes, label="layer (0: embeddings)")
    shares = [
        f"component {i} ({v:.0%})" for i, v in enumerate(result["path_variance"], 1)
    ]
    axes.set(xlabel=shares[0], ylabel=shares[1])
    axes.grid(alpha=0.3)
    figure.suptitle(f"Way of each token through the layers\n{_short(result)}")
    return to_png(figure)


def to_text(results: Sequence[Mapping[str, Any]]) -> str:
    """Returns the numbers of all models as tables for a terminal."""
    lines = []
    for result in results:
        facts = "{model}: {family}, sharing {sharing}, {tokens} tokens"
        lines += [facts.format(**result), "  layer  L2 distance   cosine  degrees"]
        lines += [
            f"  {one['layer']:5}  {one['l2_distance']:11.3f}  {one['cosine']:7.4f}  "
            f"{one['degrees']:7.2f}"
            for one in result["transitions"]
        ]
        if result["no_answers"]:
            lines += [f"  no answers after each layer: {result['no_answers']}"]
        for one in result["answers"]:
            lines += [f"  {one['text']}"]
            states = enumerate(zip(*one["masks"], strict=True))
            lines += [f"  {layer:5}  {show_masks(best)}" for layer, best in states]
    return "\n".join(lines)


def _short(result: Mapping[str, Any]) -> str:
    """Returns the end of a model's name, which is more specific than its beginning."""
    name = os.fspath(result["model"]).rstrip("/")
    name = name if len(name) <= _MAX_NAME else f"…{name[1 - _MAX_NAME :]}"
    return plain_name(name, 0, _MAX_NAME)


def _tokens(result: Mapping[str, Any]) -> list[str]:
    return [plain_name(t, i, 14) for i, t in enumerate(result["tokens_shown"])]
