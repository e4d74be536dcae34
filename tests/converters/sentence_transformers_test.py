"""Folders of sentence-transformers by hand; tests/peers runs the library itself."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

import albert_tf
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.converters.detect import format_of, open_checkpoint
from albert_tf.errors import DataError, UsageError
from albert_tf.heads import find
from tests.tiny import CONFIG, make_model, randomize

# The graphs of an embedder are tested where it is.
pytestmark = pytest.mark.usefixtures("eager")
D = CONFIG.hidden_size
TEXTS = ["the cat sat on the mat", "one", "A much longer text, of many words " * 9]
OLD = "sentence_transformers.models."
NEW = "sentence_transformers.base.modules."
FLAGS = {"word_embedding_dimension": D, "pooling_mode_mean_tokens": False}


def put(path, content):
    """Writes a JSON file, after its folder."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(content))


def put_modules(folder, *modules):
    """Lists modules: a type and what is in the `config.json` of its folder."""
    rows = []
    for i, (kind, values) in enumerate(modules):
        name = kind.rpartition(".")[2]
        path = f"{i}_{name}" if i or values is None else ""
        rows.append({"idx": i, "name": str(i), "path": path, "type": kind})
        if i and values is not None:
            put(folder / path / "config.json", values)
    put(folder / "modules.json", rows)


@pytest.fixture(scope="module")
def encoder():
    return randomize(make_model(None, num_hidden_layers=1))


@pytest.fixture(scope="module")
def written(encoder, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "theirs"
    encoder.save_pretrained(folder, format="huggingface", tokenizer=tokenizer)
    return folder


@pytest.fixture
def theirs(written, tmp_path):
    """A folder as version 2 wrote it: a transformer, and the mean of its states."""
    folder = shutil.copytree(written, tmp_path / "theirs")
    put(folder / "sentence_bert_config.json", {"max_seq_length": 9})
    pooling = {**FLAGS, "pooling_mode_mean_tokens": True}
    put_modules(folder, (f"{OLD}Transformer", {}), (f"{OLD}Pooling", pooling))
    return folder


def states_of(encoder, tokenizer, text, length=9):
    """Returns the last hidden states of a text that is cut, `[T, D]`."""
    ids = tokenizer.encode(text)[: length - 2]
    row = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id]], np.int32)
    batch = {"token_ids": row, "segment_ids": 0 * row, "padding_mask": 0 * row + 1}
    return np.asarray(encoder(batch)["sequence_output"])[0]


def dense(folder, inputs, outputs):
    """Writes a dense layer with random weights and returns its function."""
    rng = np.random.default_rng(3)
    weights = {
        "linear.weight": rng.normal(size=(outputs, inputs)).astype(np.float32),
        "linear.bias": rng.normal(size=outputs).astype(np.float32),
    }
    folder.mkdir()
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    return lambda x: np.tanh(x @ weights["linear.weight"].T + weights["linear.bias"])


def assert_vectors(folder, expected):
    embedder = albert_tf.Embedder.from_pretrained(folder)
    np.testing.assert_allclose(embedder(TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "pool"),
    [
        ({**FLAGS, "pooling_mode_cls_token": True}, lambda x: x[0]),
        ({**FLAGS, "pooling_mode_max_tokens": True}, lambda x: x.max(0)),
        ({"embedding_dimension": D, "pooling_mode": ["mean"]}, lambda x: x.mean(0)),
        ({}, lambda x: x.mean(0)),
    ],
    ids=["cls", "max", "mean", "default"],
)
def test_poolings_of_all_versions_and_the_cut(theirs, encoder, tokenizer, values, pool):
    kinds = f"{NEW}transformer.Transformer", f"{NEW}pooling.Pooling"
    put_modules(theirs, (kinds[0], {}), (kinds[1], values))
    states = [states_of(encoder, tokenizer, text) for text in TEXTS]
    assert len(states[2]) == 9 and format_of(theirs) == "sentence_transformers"
    assert_vectors(theirs, [pool(x) for x in states])
    if values:
        return
    # The length may be in the tokenizer's file, and the transformer in a folder.
    put(theirs / "sentence_bert_config.json", {"max_seq_length": None})
    inner = theirs / "0_Transformer"
    inner.mkdir()
    for path in [p for p in theirs.iterdir() if p.is_file()]:
        if path.name != "modules.json":
            path.rename(inner / path.name)
    options = json.loads((inner / "tokenizer_config.json").read_text())
    put(inner / "tokenizer_config.json", {**options, "model_max_length": 9})
    put_modules(theirs, (kinds[0], None), (kinds[1], values))
    assert_vectors(theirs, [pool(x) for x in states])


def test_dense_normalize_truncation_and_prompts(theirs, encoder, tokenizer):
    settings = {
        "prompts": {"query": "q: ", "document": ""},
        "default_prompt_name": "query",
        "truncate_dim": 3,
    }
    put(theirs / "config_sentence_transformers.json", settings)
    function = dense(theirs / "2_Dense", D, 5)
    values = {"in_features": D, "out_features": 5, "bias": True}
    values["activation_function"] = "torch.nn.modules.activation.Tanh"
    modules = [
        (f"{OLD}Transformer", {}),
        (f"{OLD}Pooling", {}),
        (f"{OLD}Dense", values),
    ]
    put_modules(theirs, *modules)
    prompted, plain = (
        [function(states_of(encoder, tokenizer, p + t).mean(0)) for t in TEXTS]
        for p in ("q: ", "")
    )
    embedder = albert_tf.Embedder.from_pretrained(theirs)
    for role, expected in (("", prompted), ("query", prompted), ("document", plain)):
        received = embedder(TEXTS, role=role)
        np.testing.assert_allclose(received, np.array(expected)[:, :3], atol=1e-5)
    put_modules(theirs, *modules, (f"{OLD}Normalize", {}))
    with pytest.raises(DataError, match="truncate_dim must be null after Normalize"):
        open_checkpoint(theirs)
    put(theirs / "config_sentence_transformers.json", {"truncate_dim": 5})
    expected = np.array(plain)
    assert_vectors(theirs, expected / np.linalg.norm(expected, axis=1, keepdims=True))


def changed(name, **values):
    """Changes a file of settings."""

    def change(folder):
        path = folder / name
        put(path, {**(json.loads(path.read_text()) if path.exists() else {}), **values})

    return change


def listed(*kinds):
    """Lists other modules."""
    return lambda folder: put_modules(folder, *((kind, {}) for kind in kinds))


def with_dense(**values):
    """Adds a dense layer with other settings."""
    stored = {"in_features": D, "out_features": 4, "bias": True}
    stored["activation_function"] = "torch.nn.modules.linear.Identity"

    def change(folder):
        dense(folder / "2_Dense", D, 4)
        modules = (f"{OLD}Transformer", {}), (f"{OLD}Pooling", {})
        put_modules(folder, *modules, (f"{OLD}Dense", {**stored, **values}))

    return change


TEXT, POOLING = "sentence_bert_config.json", "1_Pooling/config.json"
SETTINGS = "config_sentence_transformers.json"
FIRST = (f"{OLD}Transformer", f"{OLD}Pooling")
REFUSED = {
    "weightedmean": changed(POOLING, pooling_mode="weightedmean"),
    "pooling_mode must be .*'mean_tokens', 'cls_token'": changed(
        POOLING, pooling_mode_cls_token=True
    ),
    "1_Pooling/config.json: is missing": lambda folder: (folder / POOLING).unlink(),
    "include_prompt .*False": changed(POOLING, include_prompt=False),
    "StaticEmbedding": listed(f"{OLD}StaticEmbedding"),
    "type must be .*'sentence_transformers.models.LSTM'": listed(
        FIRST[0], f"{OLD}LSTM", FIRST[1]
    ),
    "type must be .*'mine.Pooling'": listed(FIRST[0], "mine.Pooling"),
    "in this order, received 'Transformer'": listed(FIRST[0]),
    "order, received 'Transformer, Pooling, Normalize, Normalize'": listed(
        *FIRST, f"{OLD}Normalize", f"{OLD}Normalize"
    ),
    "activation_function must be .*ReLU": with_dense(
        activation_function="torch.nn.modules.activation.ReLU"
    ),
    "use_residual .*True": with_dense(use_residual=True),
    r"linear.weight of shape \(5, 12\)": with_dense(out_features=5),
    "module_input_name .*'token": with_dense(module_input_name="token_embeddings"),
    "query_expansion .*32": changed(TEXT, query_expansion={"length": 32}),
    "transformer_task .*'fill-mask'": changed(TEXT, transformer_task="fill-mask"),
    "max_seq_length must be .*-3": changed(TEXT, max_seq_length=-3),
    "model_type must be .*huggingface.*'CrossEncoder'": changed(
        SETTINGS, model_type="CrossEncoder"
    ),
    "prompts must be .*7": changed(SETTINGS, prompts={"query": 7}),
    "default_prompt_name must be .*'q'": changed(SETTINGS, default_prompt_name="q"),
    "truncate_dim must be .*-1": changed(SETTINGS, truncate_dim=-1),
    "model_type must be albert .*'mpnet'": changed("config.json", model_type="mpnet"),
    "not a list of modules": lambda folder: put(folder / "modules.json", {"a": 1}),
    "path must be inside .*'../x'": lambda folder: put(
        folder / "modules.json", [{"type": FIRST[0], "name": "0", "path": "../x"}]
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_expressed_is_named(theirs, message):
    REFUSED[message](theirs)
    with pytest.raises(DataError, match=message) as error:
        open_checkpoint(theirs)
    assert "\n" not in str(error.value) and str(theirs) in str(error.value)


def test_another_similarity_is_a_warning(theirs, caplog):
    put(theirs / SETTINGS, {"similarity_fn_name": "dot"})
    open_checkpoint(theirs)
    assert "similarity_fn_name is dot; search and metrics" in caplog.text


def test_the_transformer_alone(theirs, encoder):
    put(theirs / "config_sentence_transformers.json", {"model_type": "SparseEncoder"})
    model = albert_tf.from_pretrained(theirs, format="huggingface")
    assert type(model) is type(encoder)


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "pooled", "projection_size": 7, "projection_act": "tanh"},
        {"pooling": "cls", "normalize": False, "prompts": {"": "a ", "query": "q "}},
        {"pooling": "max", "dimension": 5, "projection_size": 7},
        {"dimension": 4, "normalize": False, "add_pooler": False},
    ],
    ids=lambda options: " ".join(options),
)
def test_what_is_written_is_read(options, tokenizer, tmp_path):
    model = randomize(make_model("text_embedder", num_hidden_layers=1, **options))
    model.max_seq_length = 11
    path = tmp_path / "theirs"
    model.save_pretrained(path, format="sentence_transformers", tokenizer=tokenizer)
    back = albert_tf.from_pretrained(path)
    for name in (*find("text_embedder").options, "max_seq_length"):
        assert getattr(back, name) == getattr(model, name), name
    assert (back.backbone.pooler is None) == (model.backbone.pooler is None)
    one, other = (albert_tf.Embedder(m, tokenizer)(TEXTS) for m in (model, back))
    np.testing.assert_array_equal(one, other)
    report = convert_checkpoint(path, tmp_path / "ours", "albert_tf", verify="none")
    assert not report.notes and all(row["equal"] for row in report.matched)


def test_other_heads_and_models_without_a_tokenizer_are_refused(encoder, tmp_path):
    for model in (encoder, make_model("text_embedder")):
        with pytest.raises(UsageError, match="sentence_transformers (stores|needs)"):
            model.save_pretrained(tmp_path / "m", format="sentence_transformers")
    assert not (tmp_path / "m").exists()
