"""Retrieval on a folder of the BEIR benchmark (arXiv:2104.08663), and reranking.

Reranking puts the rows of a table, each a candidate of the query that its group names,
into the order of a model's scores.

Legend: `Q` queries, `N` documents, `R` rows, one per text.
"""

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import DataError, require
from albert_tf.heads import prompts_of
from albert_tf.storage import files
from albert_tf.tables.columns import BadRows, Ids
from albert_tf.tables.reader import ColumnReader
from albert_tf.tasks.embedding import EmbeddingTask, unit_vectors
from albert_tf.tasks.nearest import nearest
from albert_tf.tasks.task import (
    LONGEST_TEXT,
    MOST_ERRORS,
    MOST_RELEVANT,
    REGRESSION,
    SINGLE_LABEL,
    EncodedExamples,
    Examples,
    FileSource,
    Task,
)
from albert_tf.tasks.text_tables import TextTable
from albert_tf.text import inputs

# Documents that are ranked for each query, as in BEIR.
_RANKED = 1000
_METRICS = ("ndcg_at_10", "mrr_at_10", "recall_at_100", "map")
OF_GROUPS = ("ndcg_at_10", "mrr_at_10", "map")


@dataclasses.dataclass(frozen=True)
class RetrievalExamples(Examples):
    """Queries, the documents that are searched, and which of them are relevant.

    Attributes:
        path: The folder, for messages.
        ids, texts: The `Q` queries.
        labels: Relevance of documents to each query, by their ids; 0 for none.
        document_ids, documents: The `N` documents, with their titles in front.
    """

    path: str
    ids: list[str]
    texts: list[str]
    labels: list[dict[str, int]]
    document_ids: list[str]
    documents: list[str]
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeirSource(FileSource):
    """A split of a BEIR folder: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`."""

    split: str

    def read(self, folder: str) -> RetrievalExamples:
        """Returns the queries that the split judges, and all documents."""
        require(folder, "data_dir must be a folder of BEIR, received none")
        _check_library("task: beir")
        document_ids, documents = _texts(_path(folder, "corpus.jsonl"))
        query_ids, queries = _texts(_path(folder, "queries.jsonl"))
        path = _path(folder, "qrels", f"{self.split}.tsv")
        names = ("query-id", "corpus-id", "score")
        table = ColumnReader(path, names, bad=BadRows(self.on_bad_input))
        (columns,) = table.portions()
        known, text_of = set(document_ids), dict(zip(query_ids, queries, strict=True))
        judged: dict[str, dict[str, int]] = {}
        for row in range(len(columns)):
            query, document, score = (columns.values[name][row] for name in names)
            where = columns.where(row)
            for kind, one, there in (
                ("query-id", query, text_of),
                ("corpus-id", document, known),
            ):
                expected = f"{where}: {kind} must be an _id of the texts in {folder}"
                require(one in there, expected, one, error=DataError)
            expected = f"{where}: score must be a whole number up to {MOST_RELEVANT:,}"
            is_number = str(score).removeprefix("-").isdecimal()
            fits = is_number and abs(int(score)) <= MOST_RELEVANT
            require(fits, expected, score, error=DataError)
            first = judged.setdefault(query, {}).setdefault(document, int(score))
            expected = f"{where}: an earlier line gives this document the score {first}"
            require(first == int(score), expected, score, error=DataError)
        return RetrievalExamples(
            folder,
            list(judged),
            [text_of[query] for query in judged],
            list(judged.values()),
            document_ids,
            documents,
        )

    def read_file(self, path: str) -> RetrievalExamples:
        """Raises `DataError`: a file alone holds no corpus."""
        raise DataError(f"{path}: beir reads a folder; give --data_dir")


class RetrievalTask(EmbeddingTask):
    """Ranks documents by the cosine of their vectors with the query's; see `Task`."""

    def encode(self, examples, tokenizer) -> EncodedExamples:
        """Returns a row per query and, after them, a row per document."""
        query, passage = prompts_of(self.prompts)
        texts = [query + text for text in examples.texts]
        texts += [passage + text for text in examples.documents]
        length = self.options.max_seq_length
        rows = inputs.encode_texts(tokenizer, texts, max_seq_length=length)
        return EncodedExamples(rows, np.arange(len(rows) + 1), {}, rows.truncated)

    def answers(self, examples, encoded, outputs) -> list[dict[str, float]]:
        """Returns the cosines of the first documents of each query, by their ids."""
        vectors = unit_vectors(outputs["logits"])
        queries, documents = np.split(vectors, [len(examples)])
        scores, found = nearest(queries, documents, _RANKED + 1)
        names = examples.document_ids
        ranked = []
        for query, row, values in zip(examples.ids, found, scores, strict=True):
            pairs = zip(row.tolist(), values.tolist(), strict=True)
            # As in BEIR, a query that is a document does not find itself.
            hits = {names[i]: x for i, x in pairs if names[i] != query}
            ranked.append(dict(list(hits.items())[:_RANKED]))
        return ranked

    def compare(self, examples, answers) -> dict[str, float]:
        """Returns means over the queries, as trec_eval computes them.

        `ndcg_at_10`, `mrr_at_10`, `recall_at_100` and `map`, over 1,000 documents.
        """
        return self.metrics(examples, answers)

    def metric_names(self, examples) -> list[str]:
        """Returns the names of the metrics."""
        return list(_METRICS)

    def collapse(self, examples, answers) -> str:
        """Returns a message if all documents have the same vector."""
        spreads = [max(x.values()) - min(x.values()) for x in answers if len(x) > 1]
        same = spreads and max(spreads) < 1e-4
        return "all documents have the same vector" * bool(same)

    def report(self, examples, answers, encoded) -> dict[str, Any]:
        """Returns the content of a report: the queries with the lowest nDCG."""
        values = [x["ndcg_at_10"] for x in _by_query(examples.labels, answers)]
        text_of = dict(zip(examples.document_ids, examples.documents, strict=True))
        worst = sorted(range(len(values)), key=values.__getitem__)[:MOST_ERRORS]
        errors = []
        for i in worst:
            best = next(iter(answers[i]), "")
            right = [name for name, score in examples.labels[i].items() if score > 0]
            errors.append(
                {
                    "index": examples.ids[i],
                    "text": examples.texts[i][:LONGEST_TEXT],
                    "label": "; ".join(text_of[x][:200] for x in right[:3]),
                    "prediction": text_of.get(best, "")[:LONGEST_TEXT],
                    "score": values[i],
                    "truncated": bool(encoded.truncated[i]),
                }
            )
        return {"errors": errors}


def _path(*parts: str) -> str:
    """Returns the path of a file, which ends with .gz if only that one exists."""
    path = files.join(*parts)
    packed = not files.exists(path) and files.exists(f"{path}.gz")
    return f"{path}.gz" if packed else path


def _texts(path: str) -> tuple[list[str], list[str]]:
    """Returns the ids of a file of texts, and the texts after their titles."""
    reader = ColumnReader(path, ("_id", "text"), optional=("title",))
    (columns,) = reader.portions()
    titles = columns.values.get("title") or [""] * len(columns)
    texts, ids = columns.values["text"], Ids()
    for row, name in enumerate(columns.values["_id"]):
        where = columns.where(row)
        is_text = isinstance(name, str) and isinstance(texts[row], str)
        expected = f"{where}: _id and text must be texts"
        require(is_text, expected, name, texts[row], error=DataError)
        try:
            ids.add(name, where)
        except DataError as e:
            raise DataError(f"{where}: {e}") from None
    joined = zip(titles, texts, strict=True)
    texts = [f"{title or ''} {text}".strip() for title, text in joined]
    return columns.values["_id"], texts


def _by_query(judged: Sequence[Mapping], scores: Sequence[Mapping]) -> list[dict]:
    """Returns the metrics of each query, as trec_eval computes them."""
    import pytrec_eval

    def evaluate(names: set[str], run: Sequence[Mapping]) -> list[dict[str, float]]:
        relevance, scored = (
            {str(i): x for i, x in enumerate(y)} for y in (judged, run)
        )
        values = pytrec_eval.RelevanceEvaluator(relevance, names).evaluate(scored)
        return [values[name] for name in relevance]

    whole = evaluate({"ndcg_cut_10", "recall_100", "map"}, scores)
    ranks = evaluate({"recip_rank"}, [dict(list(x.items())[:10]) for x in scores])
    return [
        {
            "ndcg_at_10": values["ndcg_cut_10"],
            "mrr_at_10": rank["recip_rank"],
            "recall_at_100": values["recall_100"],
            "map": values["map"],
        }
        for values, rank in zip(whole, ranks, strict=True)
    ]


def _mean(queries: Sequence[Mapping], names: Sequence[str]) -> dict[str, float]:
    return {n: float(np.mean([values[n] for values in queries])) for n in names}


def _means(examples: RetrievalExamples, answers: list) -> dict[str, float]:
    return _mean(_by_query(examples.labels, answers), _METRICS)


def check_groups(task: Task, table: TextTable) -> None:
    """Raises `UsageError` unless the model can rank the rows of the table's groups."""
    is_binary = task.problem_type == SINGLE_LABEL and len(task.labels) == 2
    require(
        is_binary or task.problem_type == REGRESSION,
        "group_column: candidates are ranked by a score or by two labels (finetune "
        "--problem_type=regression trains on relevance as a score), received "
        f"the labels {', '.join(task.labels):.200}",
    )
    _check_library("group_column")
    several = len(set(table.groups)) < len(table)
    message = f"group_column: {table.path}: expected groups of several rows, received"
    require(several, f"{message} {len(table)} of one (--group_column= for none)")


def rank_groups(
    table: TextTable, relevance: np.ndarray, scores: np.ndarray
) -> list[dict[str, Any]]:
    """Returns the metrics, the group and the ranked rows of each query of a table.

    Of equal scores, the less relevant candidate comes first, so that a model that
    answers all alike gains nothing by the order of the rows.
    """
    queries: dict[str, list[int]] = {name: [] for name in table.groups}
    for row in np.lexsort([relevance, -scores]).tolist():
        queries[table.groups[row]].append(row)
    judged = [{str(i): int(relevance[i]) for i in rows} for rows in queries.values()]
    ranks = [{str(i): -float(n) for n, i in enumerate(x)} for x in queries.values()]
    measured = zip(queries.items(), _by_query(judged, ranks), strict=True)
    return [
        {**values, "group": name, "rows": rows, "right": relevance[rows] > 0}
        for (name, rows), values in measured
    ]


def compare_groups(queries: Sequence[Mapping]) -> dict[str, float]:
    """Returns means over the queries of `rank_groups`, and numbers of queries.

    The metrics of a query without a relevant candidate, which is counted, are 0.
    """
    without = sum(not query["right"].any() for query in queries)
    counts = {"queries": len(queries), "queries_without_relevant": without}
    return _mean(queries, OF_GROUPS) | counts


def worst_groups(
    queries: Sequence[Mapping], table: TextTable, truncated: np.ndarray
) -> list[dict[str, Any]]:
    """Returns the queries with the lowest nDCG, for a report."""
    texts = table.text_pairs or table.texts
    with_relevant = [query for query in queries if query["right"].any()]
    return [
        {
            "index": query["group"],
            "text": table.texts[rows[0]][:LONGEST_TEXT],
            "label": "; ".join(
                texts[i][:200] for i in np.array(rows)[query["right"]][:3]
            ),
            "prediction": texts[rows[0]][:LONGEST_TEXT],
            "score": query[_METRICS[0]],
            "truncated": bool(truncated[rows].any()),
        }
        for query in sorted(with_relevant, key=lambda x: x[_METRICS[0]])[:MOST_ERRORS]
        for rows in [query["rows"]]
    ]


def _check_library(name: str) -> None:
    there = importlib.util.find_spec("pytrec_eval")
    require(there, f"{name} needs pytrec_eval: pip install albert_tf[retrieval]")


TASKS = (
    RetrievalTask(
        name="beir",
        head="text_embedder",
        metrics=_means,
        selecting_metric=_METRICS[0],
        splits={name: BeirSource(split=name) for name in ("dev", "test")},
    ),
)
