"""Pictures of what is inside models, drawn from the numbers that they are given."""

import numpy as np
import pytest

from albert_tf.reports import inspection
from albert_tf.reports.inspection import draw, to_text


def result_of(layers=3, heads=2, tokens=("[CLS]", "a$b$c", "日", "[SEP]"), masks=1):
    """What `inspect_model` returns, with numbers that say where they belong."""
    shape = (heads, len(tokens), len(tokens))
    attention = np.full(shape, 1 / len(tokens)) + np.arange(heads)[:, None, None] / 9
    best = [[[f"best{i}", i / 10], ["", 0.01]] for i in range(layers + 1)]
    return {
        "model": "runs/a_folder/that/has/a/name/which/is/long/model",
        "family": "albert",
        "sharing": "all",
        "num_hidden_layers": layers,
        "hidden_size": 8,
        "tokens": 77,
        "transitions": [
            {"layer": i, "l2_distance": 10.0 * i, "cosine": 0.5, "degrees": 60.0 + i}
            for i in range(1, layers + 1)
        ],
        "answers": [{"text": "a [MASK] b", "masks": [best] * masks}] if masks else [],
        "no_answers": "" if masks else "no text has a mask",
        "tokens_shown": list(tokens),
        "attention": {"1": attention.tolist(), "3": attention.tolist()},
        "path": np.arange((layers + 1) * len(tokens) * 2.0)
        .reshape(layers + 1, len(tokens), 2)
        .tolist(),
        "path_variance": [0.625, 0.25],
    }


@pytest.mark.slow
def test_names_of_pictures_and_same_bytes():
    results = [result_of(masks=0), result_of()]
    pictures = dict(draw(results))
    assert list(pictures) == [
        "layers.png",
        *("attention_1_layer_1.png", "attention_1_layer_3.png", "path_1.png"),
        "answers_2.png",
        *("attention_2_layer_1.png", "attention_2_layer_3.png", "path_2.png"),
    ]
    assert all(data.startswith(b"\x89PNG") for data in pictures.values())
    assert dict(draw(results)) == pictures


def test_a_line_for_each_model(drawn):
    inspection.draw_transitions([result_of(), result_of(layers=2)])
    distance, angle = drawn[0].axes
    lines = [line.get_xydata().tolist() for line in distance.lines]
    assert lines == [[[1, 10], [2, 20], [3, 30]], [[1, 10], [2, 20]]]
    assert angle.lines[1].get_ydata().tolist() == [61, 62]
    looks = {(x.get_color(), x.get_marker(), x.get_linestyle()) for x in angle.lines}
    assert len(looks) == 2
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert [label[:3] for label in labels] == ["1: ", "2: "]
    assert labels[0].endswith("/which/is/long/model")


def test_the_best_answer_after_each_layer(drawn):
    inspection.draw_answers(result_of(masks=9))
    axes = drawn[0].axes[0]
    scores = axes.images[0].get_array()
    assert scores.shape == (4, 8)  # more columns could not be read
    assert scores[:, 0].tolist() == [0, 0.1, 0.2, 0.3]
    texts = [text.get_text() for text in axes.texts]
    assert texts[::8] == ["best0", "best1", "best2", "best3"]
    other = result_of()
    other["answers"] = [
        {**one, "text": text}
        for one in other["answers"]
        for text in (12 * "cost in $ " + "[MASK]", "日 [MASK]", "\udcff [MASK]")
    ]
    inspection.draw_answers(other)
    names = [text.get_text() for text in drawn[1].axes[0].get_xticklabels()]
    assert names[0].startswith("cost in \\$ cost in\n\\$ cost in \\$ cost\nin \\$ ")
    assert names[0].count("\n") == 3 and names[1:] == ["no. 2", r"\udcff [MASK]"]


def test_maps_and_ways_have_the_tokens(drawn):
    inspection.draw_attention(result_of(heads=3), "1")
    inspection.draw_path(result_of())
    maps = [axes for axes in drawn[0].axes if axes.images]
    assert [axes.get_title() for axes in maps[:3]] == ["head 1", "head 2", "head 3"]
    assert maps[1].images[0].get_array()[0, 0] == pytest.approx(1 / 4 + 1 / 9)
    names = [r"[CLS]", r"a\$b\$c", "no. 3", "[SEP]"]
    assert [text.get_text() for text in maps[0].get_yticklabels()] == names
    axes = drawn[1].axes[0]
    assert [text.get_text() for text in axes.texts] == names
    assert axes.lines[1].get_xydata().tolist() == [[2, 3], [10, 11], [18, 19], [26, 27]]
    assert axes.get_xlabel() == "component 1 (62%)"


def test_tables():
    lines = to_text([result_of(), result_of(masks=0)]).splitlines()
    assert lines[0].endswith("long/model: albert, sharing all, 77 tokens")
    assert lines[3].split() == ["2", "20.000", "0.5000", "62.00"]
    assert lines[5:7] == ["  a [MASK] b", "      0  best0 0.0%, ▁ 1.0%"]
    assert lines[-1] == "  no answers after each layer: no text has a mask"
