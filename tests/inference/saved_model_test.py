"""A SavedModel in Python answers as it is asked, to the last digit."""

import dataclasses
import gzip
import json
import pathlib
import threading

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.export.saved_model import export_saved_model
from albert_tf.inference import saved_model
from albert_tf.inference.forward import alone_at_first
from albert_tf.inference.saved_model import Shards, find_files, open_rows
from albert_tf.inference.settings import BulkSettings, ServedSettings
from albert_tf.jobs.folder import Workplace
from albert_tf.storage import files
from tests import exits

# Columns and ranks by input, and columns to copy.
ONE = ({"text": "sentence"}, {"text": 1}, ("id",))
LINES = ({"text": "text"}, {"text": 1})
TEXTS = ["one", "", "three, with a comma"]


@pytest.fixture(scope="module")
def tags(exported):
    pytest.importorskip("seqeval")
    return exported("token_classifier")


@pytest.mark.slow
def test_rows_have_their_own_number_of_choices(exported):
    choices = exported("multiple_choice")
    ranks, outputs = saved_model.read_signature(choices, "serving_default")
    assert ranks == {"choices": 2, "context": 1, "question": 1}
    assert outputs == ["choice", "index", "logits", "probabilities"]
    model = saved_model.ServedModel(choices, "serving_default")
    inputs = {
        "context": ["a film", "b", "the third one is long"],
        "question": ["good?", "", "why"],
        "choices": [["yes", "no", "maybe"], ["a", "b"], ["p", "q"]],
    }
    answers = model.answer(inputs, 2)
    assert [len(answer["probabilities"]) for answer in answers] == [3, 2, 2]
    for k, answer in enumerate(answers):
        alone = model.answer({name: v[k : k + 1] for name, v in inputs.items()}, 2)
        assert answer["choice"] == alone[0]["choice"] in inputs["choices"][k]
        np.testing.assert_allclose(answer["logits"], alone[0]["logits"], atol=1e-5)
    assert answers == model.answer(inputs, 2)


@pytest.mark.slow
def test_rows_are_without_what_fills_them_up(tags):
    model = saved_model.ServedModel(tags, "tag")
    texts = ["one two three", "", "one"]
    answers = model.answer({"text": texts}, 8)
    assert [answer["words"] for answer in answers] == [t.split() for t in texts]
    assert all(len(a["tags"]) == len(a["scores"]) == a["num_words"] for a in answers)
    score = answers[0]["scores"][0]
    assert score == float(str(np.float32(score)))  # no digits beyond float32
    json.dumps(answers)


@pytest.mark.broad
def test_a_model_with_an_exit_rule_answers_whole(tokenizer, tmp_path):
    path = export_saved_model(
        exits.make_model(num_labels=6),
        tmp_path / "model",
        tokenizer=tokenizer,
        exit="layers:2",
        warmup_batch_sizes=(),
    )
    model = saved_model.ServedModel(path, "serving_default")
    (answer,) = model.answer({"text": ["one two three"]}, 1)
    assert answer["num_layers"] == 2
    assert len(answer["logits"]) == len(answer["probabilities"]) == 6


def test_only_counts_shorten_a_row():
    found = {"num_layers": np.array([1]), "logits": np.array([[1.5, 2.5]], np.float32)}
    answer = {"num_layers": 1, "logits": [1.5, 2.5]}
    assert saved_model._row(found, 0, ["one"]) == answer
    found = {"num_masks": np.array([1]), "tokens": np.array([[[b"a"], [b""]]], object)}
    answer = {"num_masks": 1, "tokens": [["a"]]}
    assert saved_model._row(found, 0, ["one [MASK]"]) == answer


def test_what_is_no_number_in_json():
    values = np.array([1.5, np.nan, np.inf], np.float32)
    assert saved_model._plain(values) == [1.5, None, None]


@pytest.mark.slow
def test_signatures_that_cannot_be_asked(tags, tmp_path):
    with pytest.raises(UsageError, match="signature: expected one of .*tag.*'abc'"):
        saved_model.read_signature(tags, "abc")
    with pytest.raises(UsageError, match="tokens takes lengths of type DT_INT32"):
        saved_model.read_signature(tags, "tokens")
    with pytest.raises(DataError, match="saved_model.pb: cannot be read"):
        saved_model.read_signature(tmp_path, "tag")
    (tmp_path / "saved_model.pb").write_bytes(b"no")
    with pytest.raises(DataError, match="saved_model.pb: not a SavedModel"):
        saved_model.read_signature(tmp_path, "tag")


def test_the_digest_sees_the_weights(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "variables").mkdir()
    found = {saved_model.digest(tmp_path)}
    for weights in (b"one", b"other"):
        (tmp_path / "variables/variables.index").write_bytes(weights)
        found.add(saved_model.digest(tmp_path))
    assert len(found) == 3


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_files_of_texts_are_answered(tags, tmp_path, num_workers):
    for name, count in (("a", 3), ("b", 5)):
        lines = [json.dumps({"id": f"{name}{k}", "s": "x " * k}) for k in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    (tmp_path / "out-00000-of-00009.jsonl").write_text("old")
    served = ServedSettings(
        signature="tag", columns=("text=s",), copy_columns=("id",), num_shards=3
    )
    bulk = BulkSettings(rows_per_part=2, num_workers=num_workers)
    given = tags, f"{tmp_path}/*.jsonl", f"{tmp_path}/out", served, bulk
    with pytest.raises(UsageError, match="of-00009.jsonl exists already"):
        saved_model.predict_served(*given)
    given = tags, f"{tmp_path}/?.jsonl", *given[2:]
    many = dataclasses.replace(served, num_shards=9)
    with pytest.raises(UsageError, match="num_shards: 9 files, but only 8 texts"):
        saved_model.predict_served(*given[:3], many, bulk, overwrite=True)
    # The answers are kept for a command with fewer.
    done = saved_model.predict_served(*given, overwrite=True)
    assert done.resumed == 8
    names = [f"{tmp_path}/out-{k:05d}-of-00003.jsonl" for k in range(3)]
    assert done.paths == names and done.rows == 8
    texts = [pathlib.Path(name).read_text().splitlines() for name in names]
    rows = [[json.loads(line) for line in lines] for lines in texts]
    assert [len(part) for part in rows] == [2, 3, 3]
    rows = sum(rows, [])
    assert [row["index"] for row in rows] == list(range(8))
    names = [f"a{k}" for k in range(3)] + [f"b{k}" for k in range(5)]
    assert [row["id"] for row in rows] == names
    alone = saved_model.ServedModel(tags, "tag").answer({"text": ["x x"]}, 1)
    assert rows[2]["tags"] == alone[0]["tags"]
    assert len(list(tmp_path.iterdir())) == 5


def _write_shards(place, num_shards=2, overwrite=False):
    output = Shards(place.path.removesuffix(".parts"), num_shards=num_shards)
    with place.open(output.existing(), overwrite):
        place.write(0, "", saved_model.Part(b"1\n2\n3\n", {"rows": 3}))
        place.claim(output.paths(3))
        output.write(lambda: place.parts(1), place)
        place.remove()


@pytest.mark.parametrize("is_replacing", [False, True])
@pytest.mark.parametrize("num_shards", [2, 1])
def test_a_run_killed_between_two_shards_goes_on(
    tmp_path, monkeypatch, is_replacing, num_shards
):
    old = tmp_path / "a-00000-of-00003.jsonl"
    if is_replacing:
        old.write_text("old")
    place = Workplace(f"{tmp_path}/a.parts", {})
    rename, left = files.rename, iter([1])

    def killed(source, path):
        if ".partial" not in source and not list(left):
            raise KeyboardInterrupt
        rename(source, path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            _write_shards(place, overwrite=is_replacing)
    assert (tmp_path / "a-00000-of-00002.jsonl").exists()
    assert old.exists() == is_replacing
    _write_shards(place, num_shards, overwrite=is_replacing)
    texts = ["1\n", "2\n3\n"] if num_shards == 2 else ["1\n2\n3\n"]
    found = sorted((p.name, p.read_text()) for p in tmp_path.iterdir())
    names = [f"a-{k:05d}-of-{num_shards:05d}.jsonl" for k in range(num_shards)]
    assert found == list(zip(names, texts, strict=True))


@pytest.mark.parametrize("name", ["hf://a/b", "kaggle://a/b/keras/c", "a_preset"])
def test_the_name_of_a_model_is_no_saved_model(name):
    assert not saved_model.is_saved_model(name)


def test_batches_are_answered_at_the_same_time():
    barrier = threading.Barrier(2, timeout=30)

    texts, calls = ["c", "bb", "aaa"], []

    def signature(text):
        calls.append(text)
        if len(calls) > 1:  # the first one is alone
            barrier.wait()
        return {"text": text}

    model = object.__new__(saved_model.ServedModel)
    model._tf, model._num_threads = tf, 2
    model._ask = alone_at_first(signature)
    assert model.answer({"text": texts}, 1) == [{"text": text} for text in texts]


def _write(folder, kind):
    path = folder / f"in.{kind}"
    if kind == "jsonl.gz":
        lines = [json.dumps({"id": k, "sentence": t}) for k, t in enumerate(TEXTS)]
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    elif kind == "tsv":
        lines = [f"{k}\t{t}" for k, t in enumerate(TEXTS)]
        path.write_text("id\tsentence\n" + "\n".join(lines))
    else:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pa.table({"sentence": TEXTS, "id": [0, 1, 2]})
        parquet.write_table(table, path)
    return str(path)


@pytest.mark.parametrize("kind", ["jsonl.gz", "tsv", "parquet"])
def test_tables_are_cut_into_blocks(tmp_path, kind):
    ids = ["0", "1", "2"] if kind == "tsv" else [0, 1, 2]
    blocks = list(open_rows([_write(tmp_path, kind)], *ONE).portions(2))
    assert [block.inputs["text"] for block in blocks] == [TEXTS[:2], TEXTS[2:]]
    assert [block.copied["id"] for block in blocks] == [ids[:2], ids[2:]]


def test_copied_values_keep_their_types(tmp_path):
    path = tmp_path / "in.jsonl"
    values = [7, 1.5, True, None, "7", [1, "a"]]
    lines = [json.dumps({"id": value, "sentence": "a"}) for value in values]
    path.write_text("\n".join([*lines, '{"id": NaN, "sentence": "a"}']))
    (block,) = open_rows([str(path)], *ONE).portions(9)
    assert block.copied["id"] == [*values, None]


def test_every_line_of_text_is_a_row(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes("ä\n\nlast\r\n".encode())
    (block,) = open_rows([str(path)], *LINES).portions(10)
    assert block.inputs == {"text": ["ä", "", "last"]}
    path.write_bytes(b"")
    with pytest.raises(DataError, match="in.txt: contains no text"):
        list(open_rows([str(path)], *LINES).portions(10))


@pytest.mark.parametrize(
    ("rank", "value", "message"),
    [
        (1, None, "line 2: column 'text': expected a text, received null"),
        (1, ["a"], "line 2: column 'text': expected a text, received \\[\"a\"\\]"),
        (2, "a", "line 2: column 'text': expected a list of texts, received \"a\""),
        (2, ["a", ["b"]], "line 2: .* expected a list of texts"),
    ],
)
def test_other_values_are_named(tmp_path, rank, value, message):
    path = tmp_path / "in.jsonl"
    good = "a" if rank == 1 else ["a", "b"]
    path.write_text("\n".join(json.dumps({"text": v}) for v in (good, value)))
    with pytest.raises(DataError, match=message):
        list(open_rows([str(path)], {"text": "text"}, {"text": rank}).portions(10))


def test_files_are_in_order_and_exist(tmp_path):
    for name in ("b.txt", "a.txt", "c.csv"):
        (tmp_path / name).write_text("x")
    found = find_files(f"{tmp_path}/c.csv,{tmp_path}/*.txt,{tmp_path}/a.txt")
    assert [path[-5:] for path in found] == ["c.csv", "a.txt", "b.txt"]
    with pytest.raises(DataError, match="nothing: no such file"):
        find_files(f"{tmp_path}/nothing")
    with pytest.raises(UsageError, match="must name a file"):
        find_files(" , ")


def test_lines_give_one_text_and_no_columns():
    pair = {"question": "q", "context": "c"}
    with pytest.raises(UsageError, match="takes question, context; use .jsonl"):
        open_rows(["in.txt"], pair, dict.fromkeys(pair, 1))
    with pytest.raises(UsageError, match="copy_columns: in.txt has no columns"):
        open_rows(["in.txt"], *ONE)
    open_rows(["in.csv"], *ONE)


def test_wrong_settings_are_refused():
    with pytest.raises(UsageError, match="num_shards must be positive, received -1"):
        ServedSettings(num_shards=-1)
    with pytest.raises(UsageError, match="num_shards: 2, but output_file names one"):
        Shards("a.jsonl", num_shards=2)
    served = ServedSettings(columns=("text=a=b",))
    assert served.chosen_columns() == {"text": "a=b"}
    for wrong in ("text", "text=", "=a"):
        with pytest.raises(UsageError, match="expected input=column, received"):
            ServedSettings(columns=(wrong,)).chosen_columns()
