"""Vocabulary training: settings, byte-for-byte repetition, errors, the command."""

import pytest
from sentencepiece import sentencepiece_model_pb2

from albert_tf.errors import DataError, UsageError
from albert_tf.text import train
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.train import train_tokenizer
from tests.commands import run_command
from tests.imports import ROOT

SYLLABLES = ["ka", "to", "mi", "ren", "sol", "bur", "de", "ling", "pa", "vor"]
MARKS = ["(old)", "£5", "1990,", "naïve", "Über", "cat-dog", '"big".', "the"]


def _sentences(n=600):
    """Words of one to three syllables, some frequent, with marks among them."""
    for i in range(n):
        words = []
        for k in range(1, 12):
            a, b, c = (i * k + k) % 10, (i + k * k) % 10, (i * i + k) % 10
            parts = [SYLLABLES[a], SYLLABLES[b], SYLLABLES[c]][: 1 + (i + k) % 3]
            words.append("".join(parts))
        yield f"{' '.join(words).capitalize()} {MARKS[i % 8]} {i % 37}."


def _train(sentences=None, output=None, **options):
    options = {"vocab_size": 80, "progress": False} | options
    return train_tokenizer(sentences or _sentences(), output, **options)


def test_settings_are_albert_s():
    data = _train()
    proto = sentencepiece_model_pb2.ModelProto.FromString(data)
    spec = proto.trainer_spec
    assert (spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id) == (0, 1, -1, -1)
    assert spec.character_coverage == pytest.approx(0.99995)
    assert spec.input == [] and spec.model_prefix == ""
    assert proto.normalizer_spec.name == "nmt_nfkc"
    # What is set is part of the bytes, also where it is the default.
    given = {field.name for field, _ in proto.trainer_spec.ListFields()}
    assert {"model_type", "shuffle_input_sentence"} <= given
    tokenizer = AlbertTokenizer(data)
    assert tokenizer.vocab_size == 80
    pieces = [tokenizer.id_to_token(i) for i in range(13)]
    assert tuple(pieces[:5]) == train.SPECIAL_TOKENS
    assert tuple(pieces[5:]) == train.USER_DEFINED_SYMBOLS
    assert tokenizer.special_ids == [0, 1, 2, 3, 4]
    text = "Naïve (old) Über cat-dog the."
    assert tokenizer.decode(tokenizer.encode(text)) == ("naive (old) uber cat-dog the.")
    vocabulary = "".join(tokenizer.id_to_token(i) for i in range(5, 80))
    assert vocabulary == vocabulary.lower() and "ï" not in vocabulary


def test_same_bytes_in_another_process_and_no_machine_path(tmp_path, run_python):
    text = tmp_path / "some text.txt"
    text.write_text("\n".join(_sentences()) + "\n")
    outputs = [tmp_path / "a.model", tmp_path / "b.model"]
    for output in outputs:
        # Fewer sentences than there are, so that the draw takes part.
        flags = [f"--input_file={text}", f"--output_model={output}", "--vocab_size=70"]
        command = str(ROOT / "tools/train_tokenizer.py")
        done = run_python(command, *flags, "--input_sentence_size=200")
        assert done.returncode == 0, done.stderr
        assert "reading text" in done.stderr
    data = outputs[0].read_bytes()
    assert data == outputs[1].read_bytes()
    for leak in (b"some text", b"a.model", str(tmp_path).encode()):
        assert leak not in data
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".model", ".model", ".txt"]


def test_seed_changes_the_draw():
    options = {"input_sentence_size": 101, "vocab_size": 60}
    assert _train(seed=1, **options) == _train(seed=1, **options)
    assert _train(seed=1, **options) != _train(seed=2, **options)


def test_hostile_sentences_are_not_dropped():
    def sentences():
        yield from _sentences()
        yield "nul\0nul ▁lower▅ \ud800"
        yield ""
        yield "w" * 30000
        yield "quux " * 5000

    tokenizer = AlbertTokenizer(_train(sentences(), vocab_size=90))
    assert tokenizer.unk_id not in tokenizer.encode("quux nul w")


@pytest.mark.parametrize("text", ["é" * 3_000_000, "é " + "ab cd " * 2000, "a b"])
def test_a_long_line_is_cut_before_spaces(text):
    parts = list(train._cut(text))
    assert "".join(parts) == text
    assert max(len(part.encode()) for part in parts) <= 4000
    assert " " not in text or all(part[0] == " " for part in parts[1:])


def test_a_long_training_is_the_same(monkeypatch):
    expected = _train()
    monkeypatch.setattr(train, "_CHILD_CHARACTERS", 0)
    assert _train() == expected
    with pytest.raises(DataError, match=r"vocab_size 5000: .* at most \d+ tokens"):
        _train(vocab_size=5000)


INTERRUPTED = """
import random, signal, time
from tests.text import train_test

def interrupt(number, frame):
    raise KeyboardInterrupt

random_words = "".join(random.Random(1).choices("etaoinshrd", k=1_000_000))
train_test.train._CHILD_CHARACTERS = 0
signal.signal(signal.SIGALRM, interrupt)
for seconds in (0.2, 2):  # while the text is sent, and in the training
    start = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        train_test._train([random_words])
        raise SystemExit("it has ended")
    except KeyboardInterrupt:
        assert time.monotonic() - start < 10  # of more than a minute
"""


def test_a_long_training_ends_on_a_signal(run_forked):
    done = run_forked("-c", INTERRUPTED)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 13}, "vocab_size must be greater than 13, .* received 13"),
        ({"vocab_size": 20}, r"vocab_size must be at least \d+, .* received 20"),
        ({"character_coverage": 1.5}, "character_coverage .* received 1.5"),
        ({"input_sentence_size": 5}, "input_sentence_size .* received 5"),
        ({"seed": -1}, "seed .* received -1"),
        (
            {"model_type": "word"},
            "model_type .*unigram, byte_bpe, wordpiece, received 'word'",
        ),
        ({"model_type": "byte_bpe", "vocab_size": 261}, "vocab_size .*received 261"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(UsageError, match=message):
        _train(**options)


def test_text_too_small():
    with pytest.raises(DataError, match=r"vocab_size 5000: .* at most \d+ tokens"):
        _train(vocab_size=5000)
    with pytest.raises(DataError, match="expected some sentences, received none"):
        _train(iter(["", "  "]))


@pytest.mark.parametrize("model_type", train.MODEL_TYPES)
def test_an_error_of_the_reader_gets_through(model_type):
    def sentences():
        yield "a b c"
        raise DataError("corpus.txt: vanished")

    with pytest.raises(DataError, match="corpus.txt: vanished"):
        _train(sentences(), vocab_size=300, model_type=model_type)


def test_output_is_checked_first(tmp_path):
    def untouched():
        raise AssertionError("the text was read")
        yield

    output = tmp_path / "x.model"
    output.write_bytes(b"precious")
    with pytest.raises(UsageError, match="output_model: .*x.model exists already"):
        _train(untouched(), output)
    assert output.read_bytes() == b"precious"
    with pytest.raises(UsageError, match="received a folder"):
        _train(untouched(), tmp_path)
    data = _train(output=output, overwrite=True)
    assert output.read_bytes() == data
    nested = tmp_path / "new" / "y.model"
    assert _train(output=nested) == data == nested.read_bytes()


def test_command_refuses_in_one_line(tmp_path):
    done = run_command("train_tokenizer", f"--input_file={ROOT / 'README.md'}")
    assert done.code == 2 and "--output_model or --output_prefix" in done.error


def test_a_vocabulary_with_case_and_tone_marks():
    options = {"do_lower_case": False, "keep_accents": True, "vocab_size": 27}
    tokenizer = AlbertTokenizer(_train(["Uber น้ำ ไม่ใช่"] * 99, **options))
    assert {"U", "\u0e49"} <= set("".join(tokenizer.vocabulary))
