"""`pretrain` from its inputs to what it leaves, finished, stopped and continued."""

import contextlib
import dataclasses
import gc
import io
import json
import os
import re
import shutil
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.converters.load import load_tokenizer, open_checkpoint
from albert_tf.errors import DataError, UsageError
from albert_tf.models.base import weight_names
from albert_tf.objectives.pretraining import ALBERT, OBJECTIVES
from albert_tf.objectives.terms import SpanTargets
from albert_tf.optimizers import loss_scale
from albert_tf.reports import run_page
from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import render_runs
from albert_tf.storage import hubs
from albert_tf.training import base_step, loop, pretrain, pretrain_outputs
from albert_tf.training.checkpoints import TrainingCheckpoints
from albert_tf.training.pretrain_batches import RunBatches
from albert_tf.training.pretrain_inputs import check_ngram
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.progress import Progress
from albert_tf.training.start import make_pretrainer
from tests import tiny
from tests.commands import run_command
from tests.openings import count_openings
from tests.reports.parsed_page import ParsedPage
from tests.text import kinds
from tests.training import runs
from tests.training.runs import lines_of, run_pretraining

WEIGHTS = "model/model.safetensors"
SMALL = {"hidden_size": 6, "num_hidden_layers": 1, "max_position_embeddings": 64}


def act_after(monkeypatch, step, act):
    """Does something after the checkpoint of a step, before its evaluation."""
    save = TrainingCheckpoints.save

    def save_and_act(self, wait=False):
        save(self, wait=True)
        if self.step == step:
            act()

    monkeypatch.setattr(TrainingCheckpoints, "save", save_and_act)


NAME = "backbone/encoder/ffn_0/output/kernel"


def read(run, group):
    reader = tf.train.load_checkpoint(str(run / "checkpoints"))
    escaped = NAME.replace("/", ".S")
    return reader.get_tensor(f"{group}/{escaped}/.ATTRIBUTES/VARIABLE_VALUE")


def kernel(path):
    model = albert_tf.from_pretrained(path, head="pretraining")
    return model.backbone.encoder.ffns[0].get_weights()[2]


@pytest.fixture(scope="module")
def averaged(records, tmp_path_factory):
    """A run of two phases in float16, which also keeps averages, best and answers.

    Its records hold no pairs. There is a copy of it as if killed between the phases.
    """
    folder, objects = tmp_path_factory.mktemp("averaged"), []
    for length in (32, 64):
        data = records(pair_policy="none", max_seq_length=length)
        (folder / f"of_{length}").symlink_to(data)
    given = {"input_file": folder / "of_{length}", "max_predictions_per_seq": 10}
    given |= {"eval_file": folder / "of_64", "max_seq_length": 64, "eval_steps": 2}
    given |= {"num_train_steps": 9, "sequence_length_schedule": "32:6:6,64:3:2"}
    given |= {"precision": "float16", "log_steps": 1, "sample_texts": ("a [MASK]",)}
    given |= {"ema_decay": 0.9, "export_weights": "average", "keep_best": "loss"}
    given |= {"save_checkpoints_steps": 2, "train_batch_size": 2}
    record, said = Progress.record, io.StringIO()

    def record_and_count(self, split, step, values):
        record(self, split, step, values)
        if split == "eval":
            gc.collect()
            objects.append(len(gc.get_objects()))

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setattr(loss_scale, "INITIAL", 2.0**22)
        patch.setattr(Progress, "record", record_and_count)
        warn = mock.Mock()
        patch.setattr(base_step.logging, "warning", warn)
        places = folder / "run", folder / "cut"
        ignore = shutil.ignore_patterns(".lock")
        act_after(patch, 6, lambda: shutil.copytree(*places, ignore=ignore))
        run_pretraining(folder, **given)
    warned = [call.args[0] % call.args[1:] for call in warn.call_args_list]
    about = {"said": said.getvalue(), "warned": warned, "objects": objects}
    return types.SimpleNamespace(folder=folder, given=given, **about)


@pytest.mark.slow
def test_phases_averages_and_overflows_of_float16(averaged):
    run = averaged.folder / "run"
    lines, skipped = lines_of(run, "train"), 0
    for step, line in enumerate(lines, 1):
        skipped += "grad_norm" not in line
        assert line["skipped_steps"] == skipped and (skipped == step or step > 3)
        assert line["loss_scale"] == 2.0**22 / 2**skipped
    page = (run / "report.html").read_text()
    assert "Loss scale" in page and "Skipped steps" in page
    assert f"skipped={skipped}" in averaged.said
    begun = min(line["step"] for line in lines if "grad_norm" in line)
    lines = lines_of(run, "eval")
    # Phases end with an evaluation, which is not repeated when the next one begins.
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 9]
    for line in lines:
        # Nothing has been averaged; later, float16 may not tell one step from the next.
        assert line["step"] >= begun or line["ema_loss"] == line["loss"]
        assert 0 <= line["ema_mlm_accuracy"] <= 1
        assert "ema_mlm_baseline" not in line
    assert lines[-1]["ema_loss"] != lines[-1]["loss"]
    # The model is the average; the checkpoint has both.
    model = kernel(run / "model")
    np.testing.assert_array_equal(model, read(run, "averages"))
    assert np.abs(model - read(run, "weights")).max() > 1e-4
    content = json.loads((run / "run.json").read_text())["content"]["data"]
    assert {"records", "records of 32 tokens"} <= set(content)
    found = map(json.loads, (run / "samples.jsonl").read_text().splitlines())
    found = {(line["step"], line["weights"]): line["answers"] for line in found}
    assert list(found) == [(s, w) for s in (2, 4, 6, 8, 9) for w in ("last", "average")]
    assert found[9, "last"] != found[9, "average"]
    text = (run / "README.md").read_text()
    assert "decay 0.9; this model has the average" in text
    assert "32 tokens, then 3 steps of 2 examples" in text


@pytest.mark.slow
def test_averages_phases_and_float16_are_resumed_to_the_same_bits(
    averaged, monkeypatch
):
    folder, given = averaged.folder, averaged.given
    stopped = folder / "cut"
    assert not (stopped / "model").exists()
    # While it is stopped, the run is a model of the weights that it would export.
    np.testing.assert_array_equal(kernel(stopped), read(stopped, "averages"))
    assert np.any(kernel(stopped) != read(stopped, "weights"))
    monkeypatch.setattr(loss_scale, "INITIAL", 2.0**22)
    run_pretraining(folder, output_dir=stopped, **given)
    runs.assert_same_run(folder / "run", stopped)
    # Other averages and other phases are another run.
    phases = {"sequence_length_schedule": "32:6:6,64:3:1"}
    for other, message in (
        ({"ema_decay": 0.5}, "--ema_decay=0.9; received --ema_decay=0.5"),
        (phases, "--sequence_length_schedule='32:6:6,64:3:2'"),
    ):
        with pytest.raises(UsageError, match=message):
            run_pretraining(folder, **{**given, **other})


@pytest.mark.slow
def test_full_sentences_train_the_masked_lm_alone(averaged):
    run = averaged.folder / "run"
    assert "MLM accuracy" in averaged.said and "SOP" not in averaged.said
    for line in lines_of(run):
        assert line["loss"] == line["mlm_loss"]
        assert not [name for name in line if name.startswith("sop")]
    assert re.search(r"\| held out, step \d \|", (run / "README.md").read_text())
    # The pooler is not trained, and said so.
    (said,) = [text for text in averaged.warned if "pooler" in text]
    assert "the loss does not read backbone/pooler/bias, backbone/pooler/kernel" in said
    config = albert_tf.AlbertConfig.from_json(averaged.folder / "albert_config.json")
    start = weight_names(albert_tf.AlbertPretrainer(config, seed=7))
    for name in ("model", "best"):
        with pytest.warns(albert_tf.UntrainedWeightsWarning, match="backbone/pooler"):
            model = albert_tf.from_pretrained(run / name)
        assert len(model.untrained_weights) == 4
        for name, value in weight_names(model).items():
            same = np.array_equal(value, start[name])
            assert same == (name in model.untrained_weights), name


@pytest.mark.slow
def test_a_long_run_does_not_grow(averaged):
    """Evaluations, checkpoints, best models and answers leave nothing in memory."""
    # Each phase compiles. Lines of metrics stay, 50 objects at a time; a data set would
    # be 2,000.
    growth = np.diff(averaged.objects)
    assert len(growth) == 4 and max(growth[1], growth[3]) < 500, growth


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_keeps_its_best_beside_one_checkpoint(tmp_path, monkeypatch, caplog):
    losses = {2: 5.0, 4: 3.0, 6: 4.0}

    def make_evaluate(self, step, averages):
        return lambda: {"loss": losses[int(step.optimizer.iterations.numpy())]}

    monkeypatch.setattr(RunBatches, "make_evaluate", make_evaluate)
    monkeypatch.setattr(type(ALBERT), "describe", lambda self, step, values: "")
    for name in ("_draw", "model_card"):
        monkeypatch.setattr(pretrain_outputs, name, lambda *args, **about: "")
    given = {"keep_best": "loss", "keep_checkpoint_max": 1, "eval_steps": 2}
    given |= {"save_checkpoints_steps": 2, "eval_file": str(runs.RECORDS)}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        act_after(patch, 4, mock.Mock(side_effect=KeyboardInterrupt))
        run_pretraining(tmp_path, **given)
    run = tmp_path / "run"
    record = json.loads((run / "best/best.json").read_text())
    assert record["step"] == 2  # stopped before the evaluation of step 4
    run_pretraining(tmp_path, **given)
    record = json.loads((run / "best/best.json").read_text())
    # One batch of eight examples.
    evaluated_on = record.pop("evaluated_on")
    assert evaluated_on.pop("records")
    assert evaluated_on == {"rows": 8, "masked_lm_prob": 0.15, "max_ngram": 3}
    assert record == {"metric": "loss", "value": 3.0, "step": 4}
    assert [p.name for p in run.glob("checkpoints/*.index")] == ["step-6.index"]
    best = albert_tf.from_pretrained(run / "best", head="pretraining")
    assert not best.untrained_weights
    assert np.abs(kernel(run / "best") - kernel(run / "model")).max() > 0
    # After a power cut and kills, the same command makes the model again, and tidies.
    weights = run / WEIGHTS
    before = weights.read_bytes()
    names = sorted(path.name for path in run.iterdir())
    weights.write_bytes(b"")
    os.rename(run / "best", run / ".best.old-0123abcd")
    for name in (".best.tmp-0123abcd", ".model.old-0123abcd"):
        (run / name).mkdir()
    (run / ".run.json.0123abcd.partial").touch()
    (run / ".lock").write_text("{}")
    (run / "best.old-20240131").mkdir()  # a user's
    run_pretraining(tmp_path, **given)
    assert "made again from the last checkpoint" in caplog.text
    assert weights.read_bytes() == before
    left = sorted(path.name for path in run.iterdir())
    assert left == sorted(["best.old-20240131", *names])
    weights.write_bytes(b"")
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(DataError, match="no checkpoint is left to make the model"):
        run_pretraining(tmp_path, **given)


@pytest.fixture
def small(tmp_path):
    """A model of two layers, and the settings of a run of one step with it."""
    config = albert_tf.AlbertConfig.from_dict(runs.SIZES).replace(num_hidden_layers=2)
    path = tmp_path / "small"
    model = albert_tf.AlbertPretrainer(config, seed=5)
    albert_tf.save_pretrained(model, path, tokenizer=runs.SPIECE)
    lengths = {"num_train_steps": 1, "num_warmup_steps": 0, "learning_rate": 0.00176}
    return {"init_checkpoint": str(path), **lengths}


@pytest.mark.parametrize(
    ("layers", "hidden", "grow", "message"),
    [
        (5, 12, False, "layers=2, not 5; --grow allows it$"),
        (5, 14, False, "hidden_size=12, not 14; num_hidden_layers=2, not 5$"),
        (2, 14, True, "cannot grow into another size.*=12, not 14"),
    ],
)
def test_other_sizes_are_refused(small, tmp_path, layers, hidden, grow, message):
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden}
    with pytest.raises(UsageError, match=message):
        run_pretraining(tmp_path, sizes, **small, grow=grow)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_grown_model_is_trained(small, tmp_path, monkeypatch):
    path = small.pop("init_checkpoint")
    found = hubs.Download(path, "hf://owner/small@0123")
    monkeypatch.setattr(hubs, "download", {"hf://owner/small": found}.get)
    given = {**small, "init_checkpoint": "hf://owner/small", "grow": True}
    given |= {"precision": "bfloat16", "gradient_accumulation_steps": 2}
    folder = run_pretraining(tmp_path, {"num_hidden_layers": 3}, **given)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["init_checkpoint"] == found.origin
    trained = albert_tf.from_pretrained(folder, head="pretraining")
    assert trained.config.num_hidden_layers == 3
    with open_checkpoint(path) as start:
        before = start.tensors[NAME].read()
    moved = np.abs(kernel(folder) - before).max()
    assert 0 < moved < 0.01  # one step from there


LINE = {"loss": 3.0, "mlm_loss": 2.5, "mlm_accuracy": 0.5, "tokens_per_second": 9.0}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Runs `pretrain` with a loop that records one line and then does `end`."""

    def run(step, end=lambda: None):
        def train(self, *args):
            self.progress.record("train", step, LINE)
            end()

        monkeypatch.setattr(loop.Loop, "train", train)
        run_pretraining(tmp_path, num_train_steps=30)

    return run


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError("the loss is nan")])
def test_a_stopped_run_leaves_a_page_and_its_error(fake, tmp_path, error):
    with pytest.raises((KeyboardInterrupt, DataError)):
        fake(12, mock.Mock(side_effect=error))
    page = ParsedPage((tmp_path / "run/report.html").read_bytes())
    assert "40% done" in page.text and "The same command continues" in page.text
    assert {"Overview", "Curves", "Values"} <= set(page.titles)
    assert not (tmp_path / "run/model").exists()


def test_a_finished_run_has_the_page_of_the_command(fake, tmp_path):
    fake(30)
    run = tmp_path / "run"
    page = ParsedPage((run / "report.html").read_bytes())
    assert "same command" not in page.text and "30 of 30" in page.text
    assert "0.5000" in page.text and "parameters" in page.text
    assert "versions keras" in page.text and "train_batch_size" in page.text
    again = render_runs(read_runs([str(run)]))
    assert again == (run / "report.html").read_bytes()
    for name in ("curves.png", "README.md", WEIGHTS):
        assert (run / name).stat().st_size > 0


def test_a_picture_that_cannot_be_drawn_costs_no_model(
    fake, tmp_path, monkeypatch, caplog
):
    fail = mock.Mock(side_effect=ValueError("no\nfonts"))
    monkeypatch.setattr(run_page, "render_runs", fail)
    monkeypatch.setattr(run_page, "draw_curves", fail)
    with caplog.at_level("WARNING"):
        fake(30)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    for name in ("report.html", "curves.png"):
        assert f"{name}: not written: ValueError: no fonts" in caplog.text
        assert name not in names
    assert {"model", "README.md"} <= names


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_knows_its_data_by_content_and_may_go_on(tmp_path, capfd):
    data, run = tmp_path / "data.tfrecord", tmp_path / "run"
    data.write_bytes(runs.RECORDS.read_bytes())
    run_pretraining(tmp_path, input_file=data, num_train_steps=2)
    # The same data under another name, as after a move.
    moved = {"input_file": data.rename(tmp_path / "moved.tfrecord")}
    run_pretraining(tmp_path, num_train_steps=2, **moved)
    # A finished run continues on request, and a lower number cannot undo steps.
    longer = {**moved, "change_num_train_steps": True}
    run_pretraining(tmp_path, **longer, num_train_steps=3)
    assert "continuing from step 2" in capfd.readouterr().err
    assert "3 steps of" in (run / "README.md").read_text()
    np.testing.assert_array_equal(
        *(kernel(run / name) for name in ("checkpoints/step-3", "model"))
    )
    with pytest.raises(UsageError, match="--num_train_steps must be at least 3"):
        run_pretraining(tmp_path, **longer, num_train_steps=2)
    # Other data under the same name.
    content = runs.RECORDS.read_bytes()
    length = int.from_bytes(content[:8], "little")
    data.write_bytes(content[12 + length + 4 :])
    with pytest.raises(UsageError, match="another run, with data: records="):
        run_pretraining(tmp_path, **{**longer, "input_file": data}, num_train_steps=3)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"max_predictions_per_seq": 5}, 1, "5"),
        ({"depth_range": "2,3"}, 2, "--depth_range must be within 1,2, the layers of"),
        ({"depth": "loop"}, 2, "--depth=loop: needs layers that read the same weights"),
    ],
)
def test_a_mistake_costs_one_line(tmp_path, changes, code, message):
    sizes = {"sharing": "none", "num_hidden_layers": 2}
    done = run_command("pretrain", **runs.pretraining(tmp_path, sizes, **changes))
    assert done.code == code and message in done.error
    assert "Traceback" not in done.err and not (tmp_path / "run").exists()


def test_the_initial_checkpoint_is_opened_once_and_gives_config_and_tokenizer(
    small, tmp_path, monkeypatch
):
    stop = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(pretrain.Pretraining, "train", stop)
    counts, path = count_openings(monkeypatch), small["init_checkpoint"]
    with pytest.raises(KeyboardInterrupt):
        run_pretraining(tmp_path, **small, albert_config_file="", spm_model_file="")
    assert counts == {("open", path): 1, ("verify", path): 1}
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["content"]["config"]["num_hidden_layers"] == 2


def test_objectives_and_the_weight_of_their_pair_loss(tmp_path):
    for name in (*OBJECTIVES, "elctra"):
        values = runs.pretraining(tmp_path, objective=name, pair_loss_weight=0.5)
        no_pairs = "--pair_loss_weight=0.5 requires an objective with a loss about pair"
        message = no_pairs if name in OBJECTIVES else "--objective must be one of albe"
        fits = name in ("albert", "bert")
        refused = pytest.raises(UsageError, match=message)
        with contextlib.nullcontext() if fits else refused:
            terms = pretrain.find_objective(PretrainSettings(**values)).terms
            assert [term.loss_weight for term in terms] == [1.0, 0.5]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_decides_what_is_not_given(tmp_path, name):
    spans = {"max_span": 7, "span_edges": "all"} if name == "spanbert" else {}
    given = {"objective": name, **spans}
    settings = PretrainSettings(**runs.pretraining(tmp_path, **given))
    objective = pretrain.find_objective(settings)
    assert settings.masking == name
    other = dataclasses.replace(settings, masking="bert_wwm")
    assert other.masking == "bert_wwm"
    targets = [t.weights for t in objective.terms if callable(t.weights)]
    assert targets == [SpanTargets(7, "all")] * (name == "spanbert")


def test_ngrams_of_masks_that_have_none(tmp_path):
    settings = PretrainSettings(**runs.pretraining(tmp_path, ngram=2, masking="bert"))
    with pytest.raises(UsageError, match="--ngram=2 requires --masking=albert, rec"):
        check_ngram(settings, was_begun=False)
    check_ngram(settings, was_begun=True)
    check_ngram(dataclasses.replace(settings, masking="albert"), was_begun=False)
    check_ngram(dataclasses.replace(settings, ngram=3), was_begun=False)


def short(data, **changes):
    """Returns settings of two steps, evaluated on what was trained."""
    given = {"input_file": data, "eval_file": data, "max_seq_length": 64}
    given |= {"max_predictions_per_seq": 10, "num_train_steps": 2, "log_steps": 1}
    return {**given, **changes}


@pytest.mark.slow
def test_spans_from_records_to_the_model(records, tmp_path, capfd):
    data, out = records(pair_policy="none", max_seq_length=64), tmp_path / "run"
    spans = {"objective": "spanbert", "max_span": 4, "keep_best": "sbo_accuracy"}
    given = short(data, **spans)
    run_pretraining(tmp_path, SMALL, **given)
    assert "SBO accuracy" in capfd.readouterr().err
    for line in lines_of(out):
        assert 0 <= line["sbo_accuracy"] <= 1
        assert line["loss"] == pytest.approx(line["mlm_loss"] + line["sbo_loss"])
        assert not [name for name in line if name.startswith(("sop", "nsp"))]
    record = json.loads((out / "run.json").read_text())
    assert record["settings"]["masking"] == "spanbert"
    card = (out / "README.md").read_text()
    assert "| SBO accuracy |" in card and "masking `spanbert`" in card
    page = ParsedPage((out / "report.html").read_bytes())
    assert "SBO accuracy" in page.text
    model = albert_tf.from_pretrained(out / "model")
    assert type(model) is albert_tf.SpanBertPretrainer and model.max_span == 4
    # The checkpoint says the same, though its names do not show the options.
    (prefix,) = (out / "checkpoints").glob("step-2.index")
    checkpoint = albert_tf.from_pretrained(str(prefix).removesuffix(".index"))
    tiny.assert_same_weights(model, checkpoint)
    # A masked LM is where it may start: the head of the spans is then drawn.
    start = {"init_checkpoint": str(out / "model"), "albert_config_file": ""}
    with open_checkpoint(start["init_checkpoint"]) as opened:
        values = {**runs.pretraining(tmp_path, SMALL, **given), **start, "max_span": 5}
        config, head = opened.config, OBJECTIVES["spanbert"].head
        with pytest.raises(DataError, match=r"position_embeddings .* shape \(5, 200\)"):
            make_pretrainer(PretrainSettings(**values), opened, config, head, "float32")


@pytest.mark.slow
def test_roberta_from_records_to_the_model(records, tmp_path, capfd):
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_bytes(kinds.BPE.replace(b"[MASK]", b"<mask>"))
    made = {"spm_model_file": str(tokenizer), "max_seq_length": 64}
    data, out = records(pair_policy="doc_sentences", **made), tmp_path / "run"
    given = {"packing": True, "max_predictions_per_seq": None, "objective": "roberta"}
    given |= {"keep_best": "mlm_accuracy", "sample_texts": ("The [MASK] sat.",)}
    given |= {"depth_range": ("1", "1"), "depth_consistency": 0.1}
    given = short(data, **made, **given)
    sizes = {"family": "roberta", "type_vocab_size": 1, "position_offset": 1}
    sizes |= {**SMALL, "format": "albert_tf", "vocab_size": 800, "num_hidden_layers": 2}
    run_pretraining(tmp_path, sizes, **given)
    assert "MLM accuracy" in capfd.readouterr().err
    for line in lines_of(out):
        assert line["loss"] == line["mlm_loss"]
        assert ("short_loss" in line) == (line["split"] == "train")
        assert not [name for name in line if name.startswith(("sop", "nsp"))]
    record = json.loads((out / "run.json").read_text())
    assert record["settings"]["masking"] == "roberta"
    assert "| MLM accuracy |" in (out / "README.md").read_text()
    (answer,) = json.loads((out / "samples.jsonl").read_text())["answers"]
    assert len(answer["masks"]) == 1
    for folder in ("model", "best"):
        model = albert_tf.from_pretrained(out / folder)
        assert type(model) is albert_tf.AlbertMaskedLM
        assert model.config.family == "roberta" and not model.untrained_weights
    assert (
        len(albert_tf.FillMask.from_pretrained(out / "model")("The [MASK] sat.")) == 5
    )
    # Records of pairs have segments that the model has not.
    wrong = records(pair_policy="segments", **made)
    with pytest.raises(UsageError, match="needs records of one segment.*segments"):
        run_pretraining(tmp_path, sizes, **given | {"input_file": wrong})


@pytest.mark.slow
def test_next_sentence_prediction_from_records_to_the_card(records, tmp_path, capfd):
    cased = {"do_lower_case": False, "keep_accents": True, "max_seq_length": 64}
    data, out = records(pair_policy="nsp", **cased), tmp_path / "run"
    given = short(data)
    bert = {"objective": "bert", "pair_loss_weight": 0.5}
    tokenizer = load_tokenizer(run_pretraining(tmp_path, SMALL, **given, **bert))
    assert not tokenizer.do_lower_case and tokenizer.keep_accents
    said = capfd.readouterr().err
    assert "NSP accuracy" in said and "SOP" not in said
    lines = lines_of(out)
    assert [line["split"] for line in lines] == ["train", "train", "eval"]
    for line in lines:
        assert 0 <= line["nsp_accuracy"] <= 1
        assert line["loss"] == pytest.approx(line["mlm_loss"] + 0.5 * line["nsp_loss"])
        assert not [name for name in line if name.startswith("sop")]
    assert lines[-1]["nsp_baseline"] >= 0.5
    card = (out / "README.md").read_text()
    assert "| NSP accuracy |" in card and "SOP" not in card
    assert "objective `bert`" in card
    page = ParsedPage((out / "report.html").read_bytes())
    assert "NSP accuracy" in page.text and "Data card" in page.text
    # A run with other masks than the objective's says so.
    record = out / "run.json"
    values = json.loads(record.read_text())
    assert values["settings"]["masking"] == "bert"
    values["settings"]["masking"] = "albert"
    record.write_text(json.dumps(values))
    with pytest.raises(UsageError, match="--masking='albert'; received --masking='b"):
        run_pretraining(tmp_path, SMALL, **given, **bert)
    # Nothing is written if the labels belong to another objective.
    with pytest.raises(UsageError, match="--objective=albert requires"):
        run_pretraining(tmp_path, SMALL, **given, output_dir=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_new_head_is_drawn_from_the_seed(tmp_path):
    config = albert_tf.AlbertConfig.from_dict({**runs.SIZES, **SMALL})
    backbone = albert_tf.AlbertBackbone(config, seed=5)
    albert_tf.save_pretrained(backbone, tmp_path / "start")

    def weights(seed):
        values = runs.pretraining(
            tmp_path, SMALL, init_checkpoint=tmp_path / "start", seed=seed
        )
        with open_checkpoint(values["init_checkpoint"]) as start:
            settings, head = PretrainSettings(**values), ALBERT.head
            model = make_pretrainer(settings, start, config, head, "float32")
        found = weight_names(model)
        return {name: value.numpy().tobytes() for name, value in found.items()}

    one = weights(1)
    assert weights(1) == one
    changed = {name for name, value in weights(2).items() if value != one[name]}
    assert changed and all("head" in name for name in changed), changed
