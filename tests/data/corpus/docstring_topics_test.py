"""The labelled table of the demo."""

import collections
import csv

import pytest

from albert_tf.data.corpus import docstrings


@pytest.fixture
def packages(monkeypatch):
    def read_docstrings(paths, max_bytes):
        return ([f"{paths[0]} text", str(n)] for n in range(12))

    monkeypatch.setattr(docstrings, "_files_of", lambda package: [str(package)])
    monkeypatch.setattr(docstrings, "read_docstrings", read_docstrings)


def rows(path):
    with open(path) as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_tables_are_balanced_and_share_no_docstring(packages, tmp_path):
    tables = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    docstrings.write_topic_tables(*tables, train_per_topic=4, dev_per_topic=8)
    train, dev = map(rows, tables)
    for table, number in ((train, 4), (dev, 8)):
        labels = collections.Counter(row["label"] for row in table)
        assert labels == dict.fromkeys(docstrings.TOPICS, number)
        for row in table:
            assert row["text"].startswith(str(docstrings.TOPICS[row["label"]]))
    texts = [row["text"] for row in train + dev]
    assert len(set(texts)) == len(texts)
