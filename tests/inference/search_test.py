"""Search and hard negatives on small random models."""

import dataclasses
import json
import types

import numpy as np
import pytest

from albert_tf.converters.load import save_pretrained
from albert_tf.errors import DataError, UsageError
from albert_tf.inference import formats
from albert_tf.inference import search as search_module
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.files import EmbedWork, answer_rows
from albert_tf.inference.search import (
    NegativesWork,
    SearchWork,
    build_index,
    positives,
    write_pairs,
)
from albert_tf.inference.settings import BulkSettings
from albert_tf.models.embedder import AlbertTextEmbedder
from albert_tf.tasks.embedding_files import TUPLES, PairFileSettings, TextTuples
from albert_tf.tasks.task import Portions
from albert_tf.tasks.text_tables import TextFileSettings
from tests.tiny import CONFIG

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "and", "bird", "flew", "house", "a"]
TEXTS = [" ".join([*WORDS, *WORDS][i : i + 3]) for i in range(10)]
IDS = [str(i) for i in range(4)]
SETTINGS = TextFileSettings(id_column="id")


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    prompts = {"query": "the ", "passage": "a "}
    model = AlbertTextEmbedder(CONFIG, seed=1, dimension=7, prompts=prompts)
    path = tmp_path_factory.mktemp("embedder") / "model"
    save_pretrained(model, path, tokenizer=tokenizer)
    return str(path)


def table(path, texts):
    lines = (json.dumps({"id": f"d{i}", "text": text}) for i, text in enumerate(texts))
    path.write_text("\n".join(lines) + "\n")
    return lambda: SETTINGS.stream(str(path))


def search(model, tmp_path, name="found.jsonl", corpus=TEXTS, **options):
    index = build_index(
        str(tmp_path / "index"),
        EmbedWork(model=model, output_file="", role="passage"),
        table(tmp_path / "corpus.jsonl", corpus),
        {},
        **options,
    )
    output = str(tmp_path / name)
    work = SearchWork(model=model, output_file=output, index=index, k=3)
    answer_rows(work, table(tmp_path / "queries.jsonl", TEXTS[::4]))
    with open(output, encoding="utf-8") as f:
        return index, [json.loads(line) for line in f]


def test_finds_what_a_product_of_all_vectors_finds(model, tmp_path, monkeypatch):
    index, rows = search(model, tmp_path)
    embed = Embedder.from_pretrained(model)
    products = embed(TEXTS[::4], role="query") @ embed(TEXTS, role="passage").T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :3]
    assert [row["id"] for row in rows] == [f"d{i}" for i in expected.ravel()]
    assert [row["text"] for row in rows] == [TEXTS[i] for i in expected.ravel()]
    assert [row["rank"] for row in rows] == [1, 2, 3] * 3
    best = np.take_along_axis(products, expected, 1).ravel()
    np.testing.assert_allclose([row["score"] for row in rows], best, atol=1e-5)
    # The index is used again, and so are vectors that `embed` wrote.
    assert search(model, tmp_path, "again.jsonl") == (index, rows)
    given = search(model, tmp_path, "given.jsonl", vectors=index.vectors)
    assert given == (index, rows)
    with pytest.raises(UsageError, match="holds the index of another .* --overwrite"):
        search(model, tmp_path, "other.jsonl", corpus=TEXTS[:-1])
    with pytest.raises(UsageError, match="holds the index of another model or corpus"):
        work = EmbedWork(model=model, output_file="", role="passage", layers=1)
        corpus = table(tmp_path / "corpus.jsonl", TEXTS)
        build_index(str(tmp_path / "index"), work, corpus, {})
    # Vectors are never those of another corpus, not even after a kill.
    made = []
    monkeypatch.setattr(search_module, "answer_rows", lambda *_: made.append(1))
    work = EmbedWork(model=model, output_file="")
    corpus = table(tmp_path / "corpus.jsonl", TEXTS[:-1])
    build_index(str(tmp_path / "index"), work, corpus, {}, overwrite=True)
    assert made and not (tmp_path / "index/vectors.npy").exists()


def test_refuses_vectors_that_do_not_belong_to_the_corpus(model, tmp_path):
    index, _ = search(model, tmp_path)
    np.save(tmp_path / "other.npy", np.ones((10, 7), "f4"))
    with pytest.raises(UsageError, match="no other.npy.json .* model .* is unknown"):
        search(model, tmp_path, "a.jsonl", vectors=str(tmp_path / "other.npy"))
    record = json.loads((tmp_path / "index/vectors.npy.json").read_text())
    path = tmp_path / "other.npy.json"
    for name in ("model", "texts"):
        path.write_text(json.dumps(record | {name: "1"}))
        with pytest.raises(UsageError, match=f"was made with other {name}"):
            search(model, tmp_path, "a.jsonl", vectors=str(tmp_path / "other.npy"))
    path.write_text(json.dumps(record | {"role": "query"}))
    np.save(tmp_path / "other.npy", np.ones((10, 7), "f4"))
    with pytest.raises(UsageError, match="--role=passage, received 'query'"):
        search(model, tmp_path, "a.jsonl", vectors=str(tmp_path / "other.npy"))
    path.write_text(json.dumps(record))
    # The record does not show that another file has taken the place of the vectors.
    with pytest.raises(UsageError, match="other.npy: row 0 is not the model's vector"):
        search(model, tmp_path, "a.jsonl", vectors=str(tmp_path / "other.npy"))
    np.save(tmp_path / "other.npy", np.ones((9, 7), "f4"))
    with pytest.raises(UsageError, match="has 9 vectors, the corpus 10 texts"):
        search(model, tmp_path, "a.jsonl", vectors=str(tmp_path / "other.npy"))
    np.save(tmp_path / "other.npy", np.full((10, 7), np.nan, "f4"))
    with pytest.raises(DataError, match="other.npy: row 0 is not finite"):
        search(model, tmp_path, "a.jsonl", vectors=str(tmp_path / "other.npy"))


def test_many_long_positives_become_a_corpus(tmp_path):
    # More than SQLite keeps in memory.
    rows = [[f"{i}", f"{i} " * 80 + "\ud83d"] for i in range(9000)]
    where = [""] * len(rows)
    pairs = TextTuples("t", where, rows, where, where, TUPLES)
    folder = str(tmp_path / "index")
    write_pairs(folder, Portions.of(pairs))
    with search_module._new_database(folder, "texts.db") as database:
        corpus = positives(folder, "t")
        count, *_ = search_module._write_texts(database, corpus)
    assert count == 9000
    index = search_module.Index(folder, "", "", {})
    assert index.rows([8999]) == [("8999", "8999 " * 80 + "?")]
    (tmp_path / "index/mine.txt").write_text("")
    index.remove()
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["mine.txt"]


def test_negatives_are_near_but_no_positives(model, tmp_path):
    pairs = [(TEXTS[i], TEXTS[(i + 1) % 10]) for i in range(10)]
    pairs.append((TEXTS[0], TEXTS[5]))
    # The positives of this text alone are more than the ranks.
    pairs += [(TEXTS[3], TEXTS[i]) for i in (5, 6, 7, 8)]
    path, folder = tmp_path / "pairs.tsv", str(tmp_path / "index")
    path.write_text("text\tpositive\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    stream = lambda: PairFileSettings().stream(str(path))  # noqa: E731
    write_pairs(folder, stream())
    work = EmbedWork(model=model, output_file="", role="passage")
    index = build_index(folder, work, lambda: positives(folder, str(path)), {})
    for margin in (-2.0, 0.1):
        output = str(tmp_path / f"triples{margin}.jsonl")
        work = NegativesWork(
            model=model, output_file=output, index=index, k=2, min_rank=2, margin=margin
        )
        work = dataclasses.replace(work, max_rank=3)
        answer_rows(work, stream)
        with open(output, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        embed = Embedder.from_pretrained(model)
        products = embed(TEXTS, role="query") @ embed(TEXTS, role="passage").T
        for row, (text, positive) in zip(rows, pairs, strict=True):
            assert (row["text"], row["positive"]) == (text, positive)
            i, known = TEXTS.index(text), {b for a, b in pairs if a == text} | {text}
            near = [j for j in np.argsort(-products[i]) if TEXTS[j] not in known][1:3]
            limit = products[i, TEXTS.index(positive)] - margin
            expected = [TEXTS[j] for j in near if products[i, j] <= limit][:2]
            found = [row["negative_1"], row["negative_2"]]
            assert found == expected + [""] * (2 - len(expected))


def test_a_positive_in_another_spelling_is_no_negative(tokenizer):
    corpus = [("0", " The  Cat\tsat"), ("1", "a dog")]
    index = types.SimpleNamespace(rows=lambda numbers: [corpus[i] for i in numbers])
    work = NegativesWork(model="", output_file="", index=index, k=2)
    row, known = ["who", "the cat sat"], {"who", "the cat sat"}
    scores = np.array([0.9, 0.8])
    made = work._negatives(tokenizer.normalize, row, known, [0, 1], scores, 0.9)
    assert [*made.values()] == [*row, "a dog", ""]


def test_negatives_continue_with_the_same_pairs_only(model, tmp_path, monkeypatch):
    folder, output = str(tmp_path / "index"), str(tmp_path / "triples.jsonl")
    first = [[TEXTS[i], TEXTS[i + 1]] for i in range(4)]
    # The same positives and the same first part, but another text has the last one.
    second = [*first[:3], [TEXTS[0], TEXTS[4]]]

    def mine(rows, most=9):
        where = [""] * len(rows)
        pairs = Portions.of(TextTuples("t", IDS, rows, where, where, TUPLES))
        digest = write_pairs(folder, pairs)
        index = search_module.Index(folder, "", "", {})
        work = NegativesWork(model=model, output_file=output, index=index, pairs=digest)

        def compute(job, on_rows):
            if job.index == most:
                raise DataError("stopped")
            return formats.rows_of(work.output, job, [{"text": "a"}])

        monkeypatch.setattr(NegativesWork, "open", lambda *_: compute)
        bulk = BulkSettings(rows_per_part=2)
        return answer_rows(work, lambda: pairs, {}, bulk).resumed

    with pytest.raises(DataError, match="stopped"):
        mine(first, most=1)
    with pytest.raises(UsageError, match="with other settings: pairs .*--overwrite"):
        mine(second)
    assert mine(first) == 2
