"""`evaluate` on pretraining records: the numbers of runs, and pairs of another kind."""

import json

import numpy as np
import pytest

import albert_tf
from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.errors import DataError, UsageError
from albert_tf.text.wordpiece import WordPieceTokenizer
from albert_tf.training.pretrain_evaluation import evaluate_records
from tests.commands import run_command
from tests.text import kinds
from tests.tiny import TEXT, make_model, randomize
from tests.training import runs
from tests.training.runs import RECORDS, run_pretraining

LENGTH = {"max_seq_length": 64}
SHORT = {**LENGTH, "max_predictions_per_seq": None, "num_train_steps": 2}
# By objective, how records are made, and settings of the run.
RUNS = {
    "albert": ({"pair_policy": "clean"}, {"pair_loss_weight": 0.5, "packing": True}),
    "bert": ({"pair_policy": "nsp"}, {"masked_lm_prob": 0.2, "seed": 3}),
    "spanbert": ({"pair_policy": "none"}, {"max_span": 4}),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, records):
    """Pretrains with an objective, once: `trained("bert")` is the folder of the run."""
    made = {}

    def train(objective):
        if objective not in made:
            made[objective] = folder = tmp_path_factory.mktemp(objective)
            policy, changes = RUNS[objective]
            data = records(**policy, **LENGTH)
            given = {"input_file": data, "eval_file": data, "objective": objective}
            run_pretraining(folder, **given, **SHORT, **changes)
        return made[objective] / "run"

    return train


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    ["albert", *(pytest.param(x, marks=pytest.mark.broad) for x in [*RUNS][1:])],
)
def test_the_numbers_are_those_of_the_run(objective, trained, records, monkeypatch):
    run, data = trained(objective), records(**RUNS[objective][0], **LENGTH)
    as_there = {"eval_batch_size": 8, "max_eval_steps": 1}
    found = runs.assert_evaluated_again(run, data)
    assert found["objective"] == objective
    assert found.get("labels") == found.get("learned")
    with pytest.raises(UsageError, match="layers: must be from 1 to "):
        evaluate_records(run, data, layers=0)
    if objective == "albert":  # whose weight of pairs roberta has no use for
        assert found["labels"].startswith("sop: ")
        monkeypatch.chdir(run / "model")
        other = evaluate_records(".", data, **as_there, objective="roberta")
        assert other["mlm_loss"] == found["mlm_loss"] and "labels" not in other
    if objective == "bert":  # the others would take long
        for path in (run / "model", run / "checkpoints/step-2"):
            other = evaluate_records(path, data, **as_there)
            assert other == {**found, "model": str(path)}
        whole = evaluate_records(run, data)
        assert whole["rows"] > 8 and whole["loss"] != found["loss"]
        assert evaluate_records(run, data, seed=99)["loss"] != whole["loss"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learned", "tested", "term"),
    [
        ("albert", "nsp", "nsp"),
        pytest.param("bert", "clean", "sop", marks=pytest.mark.broad),
    ],
)
def test_pairs_of_the_other_kind(learned, tested, term, trained, records, tokenizer):
    run, data = trained(learned), records(pair_policy=tested, **LENGTH)
    # What was learned is on record, whatever the model is evaluated as.
    found = evaluate_records(run, data, packing=False, objective="bert")
    model = albert_tf.from_pretrained(run, head="pretraining")
    batches = PretrainingData(data, tokenizer=tokenizer, seed=1, **LENGTH).batches(
        50, is_training=False
    )
    hits, labels = [], []
    for batch in batches.as_numpy_iterator():
        kept = batch["sentence_order_weights"] > 0
        wrong = model(batch)["sop_logits"].numpy().argmax(-1)
        labels += batch["sentence_order_labels"][kept].tolist()
        hits += (wrong == batch["sentence_order_labels"])[kept].tolist()
    assert len(hits) == found["rows"]
    assert found[f"{term}_accuracy"] == pytest.approx(np.mean(hits))
    most = max(np.mean(labels), 1 - np.mean(labels))
    assert found[f"{term}_baseline"] == pytest.approx(most)
    own = {"bert": "nsp", "albert": "sop"}[learned]
    assert found["labels"].startswith(f"{term}: 0 the second segment follows")
    assert found["learned"].startswith(f"{own}: 0 the second segment follows")
    assert f"{own}_accuracy" not in found and found["mlm_loss"] > 0


@pytest.mark.slow
def test_a_bert_of_another_package(tmp_path, records):
    tokenizer = WordPieceTokenizer(kinds.WORDPIECE_FILE)
    sizes = {"vocab_size": tokenizer.vocab_size, "embedding_size": 12}
    sizes |= {"family": "bert", "sharing": "none", "max_position_embeddings": 64}
    model = randomize(make_model("pretraining", **sizes))
    path = tmp_path / "bert"
    albert_tf.save_pretrained(model, path, "huggingface", tokenizer=tokenizer)
    vocab = str(kinds.WORDPIECE_FILE)
    sizes = {"max_seq_length": 32, "do_lower_case": True}
    data = records(spm_model_file=vocab, pair_policy="nsp", **sizes)
    found = evaluate_records(path, data)
    assert (found["objective"], found["masking"]) == ("bert", "bert")
    assert found["max_seq_length"] == 32  # as the data card says
    assert found["labels"] == found["learned"] and found["labels"].startswith("nsp: ")
    with pytest.raises(DataError, match="were made with the tokenizer of sha256"):
        evaluate_records(path, records(**LENGTH))


@pytest.mark.slow
def test_a_head_about_pairs_that_was_not_trained(model_folder, records):
    path = model_folder("masked_lm", max_position_embeddings=64)
    data = records(pair_policy="clean", **LENGTH)
    found = evaluate_records(path, data)
    assert found["objective"] == "roberta" and "labels" not in found
    assert (found["masked_lm_prob"], found["max_ngram"]) == (0.15, 1)
    # A row may hold several examples; the head about pairs is left out.
    given = {"objective": "albert", "packing": True, "eval_masked_lm_prob": 0.3}
    pairs = evaluate_records(path, data, **given)
    assert pairs["masking"] == "albert" and "sop_loss" not in pairs
    assert 0 < pairs["rows"] < found["rows"] and pairs["masked_lm_prob"] == 0.3


@pytest.mark.parametrize(
    ("head", "given", "message"),
    [
        ("text_classifier", {}, "must have a pretraining head .*, received 'text_cl"),
        (None, {}, r"must have a pretraining head \(pretraining, .*, received None"),
        ("discriminator", {}, "both nets are evaluated in the folder of a run"),
        ("masked_lm", {"objective": "x"}, "--objective must be one of albert, "),
        ("masked_lm", {"objective": "spanbert"}, "no trained sbo_head/.*=spanbert ne"),
        ("masked_lm", {"eval_ngram": 2}, "--eval_ngram=2 requires --masking=albert"),
        ("masked_lm", {"max_eval_steps": -1}, "--max_eval_steps"),
        ("masked_lm", {"max_seq_length": 65}, "at most max_position_embeddings=64"),
        ("masked_lm", {"max_predictions_per_seq": 65}, "--max_seq_length=64, rec.* 65"),
        ("masked_lm", {"eval_batch_size": 10**9}, "--eval_batch_size must be at most "),
    ],
)
def test_mistakes(head, given, message, model_folder, records):
    path = model_folder(head, max_position_embeddings=64)
    with pytest.raises(UsageError, match=message):
        evaluate_records(path, records(**LENGTH), **given)


def test_labels_of_two_kinds(model_folder, records):
    path = model_folder("pretraining", max_position_embeddings=64)
    both = [records(pair_policy=policy, **LENGTH) for policy in ("clean", "nsp")]
    with pytest.raises(UsageError, match="labels of one kind, .*_policy=clean and nsp"):
        evaluate_records(path, ",".join(both))


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch, model_folder, records):
    path = model_folder("pretraining", max_position_embeddings=128)
    prefix = f"{records(**LENGTH)}/x"
    monkeypatch.chdir(tmp_path)
    given = ("evaluate", f"--model={path}")
    # Records of the original hold masks, and have no card.
    few = {"max_seq_length": 128, "max_eval_steps": 1}
    done = run_command(*given, eval_file=RECORDS, output_file="o.json", **few)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found == evaluate_records(path, str(RECORDS), eval_batch_size=32, **few)
    assert json.loads((tmp_path / "o.json").read_text()) == found
    assert 0 < found["rows"] <= 32
    assert found["labels"].endswith("follows the first, 1 they are swapped")
    (tmp_path / "t.tsv").write_text("text\tlabel\na\t1\n")
    for arguments, message in (
        ((prefix, "--exit=layers:1"), "exit: not with pretraining records, received"),
        ((prefix, "--text_column=a"), "text_column: not with pretraining records, r"),
        (("t.tsv", "--seed=1"), "--seed: only with pretraining records, received 1"),
        ((prefix, "--objective=electra"), "both nets are evaluated in the folder of"),
        ((f"{TEXT}.tfrecord",), "no record file matches"),
    ):
        done = run_command(*given, f"--eval_file={arguments[0]}", *arguments[1:])
        assert done.code in (1, 2) and message in done.error, done.err
