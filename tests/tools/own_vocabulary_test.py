"""A vocabulary of one's own through the commands, from text to filled masks."""

import json

import numpy as np
import pytest

from albert_tf.converters import load
from albert_tf.data.records import tfrecord
from albert_tf.text.load import load_tokenizer
from tests.commands import run_command
from tests.data.synthetic_records import parse
from tests.tiny import TEXT, tiny_config

CONFIG = tiny_config(vocab_size=600, num_hidden_layers=1, max_position_embeddings=48)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("kind", "file_name", "more"),
    [
        ("byte_bpe", "bpe.json", {"packing": True}),
        ("wordpiece", "vocab.txt", {"masking": "bert_wwm"}),
    ],
)
def test_from_text_to_filled_masks(tmp_path, kind, file_name, more):
    def tool(name, **flags):
        done = run_command(name, **flags)
        assert done.code == 0, done.err
        return done

    tokenizer_file = tmp_path / file_name
    tool(
        "train_tokenizer",
        input_file=TEXT,
        output_model=tokenizer_file,
        model_type=kind,
        vocab_size=CONFIG.vocab_size,
    )
    tool(
        "create_pretraining_data",
        input_file=TEXT,
        output_file=tmp_path / "data/t",
        tokenizer_file=tokenizer_file,
        max_seq_length=48,
        num_processes=1,
    )
    tokenizer = load_tokenizer(tokenizer_file)
    record = parse(tfrecord.RecordSet(str(tmp_path / "data/t"))[0])
    ids = record["input_ids"].tolist()
    assert ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id
    text = tokenizer.decode(ids)  # in parts: the cuts may lie inside of a sentence
    assert tokenizer.decode(ids[1:9]).strip() in text and len(text) > 60
    starts = tokenizer.word_start_table()[ids]
    np.testing.assert_array_equal(record["token_boundary"], starts)

    config = tmp_path / "config.json"
    CONFIG.to_json(config)
    done = tool(
        "pretrain",
        input_file=tmp_path / "data/t",
        tokenizer_file=tokenizer_file,
        albert_config_file=config,
        output_dir=tmp_path / "run",
        max_seq_length=48,
        max_predictions_per_seq=7,
        train_batch_size=3,
        num_train_steps=1,
        num_warmup_steps=0,
        # LAMB, answers and compiled parts take longer to trace.
        optimizer="adamw",
        sample_texts="",
        fuse_elementwise=False,
        **more,
    )
    if kind == "byte_bpe":
        assert " useful tokens" in done.err and "packed: " in done.err
    model = tmp_path / "run/model"
    assert load.load_tokenizer(model).sha256 == tokenizer.sha256
    done = tool("fill_mask", model=model, text="The [MASK] counted boats.", json="true")
    result = json.loads(done.out)["result"]
    assert len(result) == 5
    for row in result:
        assert "Ġ" not in row["token_str"] and "##" not in row["token_str"]
        assert row["sequence"].lower().startswith("the")
        assert row["sequence"].endswith((" boats.", " boats ."))


@pytest.mark.parametrize(
    ("kind", "name"), [("byte_bpe", "x.txt"), ("wordpiece", "x"), ("unigram", "x.txt")]
)
def test_a_name_says_the_kind_of_a_vocabulary(tmp_path, kind, name):
    output = {"output_model": tmp_path / name, "model_type": kind}
    done = run_command("train_tokenizer", input_file=TEXT, **output)
    rule = f"with --model_type={kind}, received {str(tmp_path / name)!r}"
    assert done.code == 2 and done.error.endswith(rule)
