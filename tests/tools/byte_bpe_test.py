"""Byte-level BPE through the commands: vocabulary, records, pretraining, fill-mask."""

import json

import numpy as np
import pytest

from albert_tf.converters import load
from albert_tf.data.records import tfrecord
from albert_tf.text.byte_bpe import ByteBPETokenizer
from tests.commands import run_command
from tests.data.synthetic_records import parse
from tests.tiny import TEXT, tiny_config

CONFIG = tiny_config(vocab_size=600, max_position_embeddings=48)
pytest.importorskip("tokenizers")


@pytest.mark.slow
def test_from_text_to_filled_masks(tmp_path):
    def tool(name, **flags):
        done = run_command(name, **flags)
        assert done.code == 0, done.err
        return done

    tokenizer_file = tmp_path / "bpe.json"
    tool(
        "train_tokenizer",
        input_file=TEXT,
        output_model=tokenizer_file,
        model_type="byte_bpe",
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
    tokenizer = ByteBPETokenizer(tokenizer_file)
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
        packing=True,
    )
    assert " useful tokens" in done.err and "packed: " in done.err
    model = tmp_path / "run/model"
    assert load.load_tokenizer(model).sha256 == tokenizer.sha256
    done = tool("fill_mask", model=model, text="The [MASK] counted boats.", json="true")
    result = json.loads(done.out)["result"]
    assert len(result) == 5
    for row in result:
        assert "Ġ" not in row["token_str"]
        assert row["sequence"].startswith("The") and row["sequence"].endswith(" boats.")
