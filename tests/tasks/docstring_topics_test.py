"""The labelled table of the demo."""

import collections
import csv

import pytest

from albert_tf.tasks import docstring_topics


@pytest.fixture
def packages(monkeypatch):
    def read_docstrings(paths, max_bytes):
        return ([f"{paths[0]} text", str(n)] for n in range(12))

    monkeypatch.setattr(docstring_topics, "_files", lambda package: [str(package)])
    monkeypatch.setattr(docstring_topics.docstrings, "read_docstrings", read_docstrings)


def rows(path):
    with open(path) as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_tables_are_balanced_and_share_no_docstring(packages, tmp_path):
    tables = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    docstring_topics.write_topic_tables(*tables, train_per_topic=4, dev_per_topic=8)
    train, dev = map(rows, tables)
    for table, number in ((train, 4), (dev, 8)):
        labels = collections.Counter(row["label"] for row in table)
        assert labels == dict.fromkeys(docstring_topics.TOPICS, number)
        for row in table:
            assert row["text"].startswith(str(docstring_topics.TOPICS[row["label"]]))
    texts = [row["text"] for row in train + dev]
    assert len(set(texts)) == len(texts)
