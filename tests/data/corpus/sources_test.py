"""Named sources: what can be given, and what is refused."""

import pytest

from albert_tf.data.corpus.corpus import Corpus, open_corpus
from albert_tf.data.corpus.sources import NamedSource, read_sources
from albert_tf.errors import DataError, UsageError


def test_sources_have_names_and_weights():
    found = read_sources("news=a*.txt:0.3, web=tfds:web/en:1.0.0:0.7")
    assert found == {
        "news": NamedSource(("a*.txt",), 0.3),
        "web": NamedSource(("tfds:web/en:1.0.0",), 0.7),
    }
    found = read_sources("a=gs://b/c.txt,b=tfds:web:1.0.0", temperature=2.0)
    assert [source.inputs[0] for source in found.values()] == [
        "gs://b/c.txt",
        "tfds:web:1.0.0",
    ]
    assert all(source.weight is None for source in found.values())


@pytest.mark.parametrize(
    "inputs",
    ["a.txt", "a*.txt,b.txt", "date=2020/a.txt", "gs://a/b=c.txt", "tfds:web/en:1.0.0"],
)
def test_other_inputs_have_no_names(inputs):
    assert read_sources(inputs) == {}


def test_a_file_of_sources(tmp_path):
    path = tmp_path / "sources.toml"
    path.write_text(
        '[news]\ninput_file = ["a.txt", "b,1.txt"]\nweight = 0.25\n'
        '[web]\ninput_file = "c.txt"\nweight = 0.75\n'
    )
    assert read_sources(str(path)) == {
        "news": NamedSource(("a.txt", "b,1.txt"), 0.25),
        "web": NamedSource(("c.txt",), 0.75),
    }


@pytest.mark.parametrize(
    ("inputs", "temperature", "message"),
    [
        ("a=x:0.3,b=y:0.6", None, r"must sum to 1, received 0.3 \+ 0.6 = 0.9"),
        ("a=x:0.3,a=y:0.7", None, "source 'a' is named twice; a TOML file"),
        ("a=x:0.3,y:0.7", None, "every source needs a name .*, received 'y:0.7'"),
        ("a=x:1,b=y", None, "every source needs a name .*, received 'b=y'"),
        ("a=x:0,b=y:1", None, "source 'a' needs a weight above 0.*received 0.0"),
        ("a=x:-1,b=y:2", None, "source 'a' needs a weight above 0.*received -1.0"),
        ("a=x:nan", None, "source 'a' needs a weight above 0.*received nan"),
        ("a=x:0.3,b=y:0.7", 2.0, "'a' can have no weight with --source_temp"),
        ("x,y", 2.0, "--source_temperature requires .*jsonl, received 'x,y'"),
        ("a=x", 0.0, "--source_temperature must be positive, received 0.0"),
    ],
)
def test_wrong_sources(inputs, temperature, message):
    with pytest.raises(UsageError, match=message):
        read_sources(inputs, temperature)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[a\n", "s.toml: is not TOML"),
        ("", "must name a source"),
        ("a = 1", r"must have a table for each source, such as \[news\].*'a'"),
        ('["a b"]\ninput_file = "x"', "with a name of letters, digits.*'a b'"),
        ('[a]\ninput_file = "x"\nwieght = 1', "did you mean 'weight'.*'wieght'"),
        ("[a]\nweight = 1", r"\[a\] input_file must be a path or a list"),
        ('[a]\ninput_file = "x"\nweight = "1"', r"\[a\] weight must be a number"),
        ('[a]\ninput_file = "x"', "source 'a' needs a weight above 0"),
        ('[a]\ninput_file = "x"\nweight = 0.5', "must sum to 1, received 0.5 = 0.5"),
        ("[a]\nweight = 1\n[a]\nweight = 1", "is not TOML: Cannot declare"),
        (f"a = {'[' * 20_000}", "is not TOML: maximum recursion depth"),
        (f"a = {'1' * 5_000}", "is not TOML: Exceeds the limit"),
    ],
)
def test_wrong_files_of_sources(tmp_path, content, message):
    path = tmp_path / "s.toml"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_sources(str(path))


def test_a_corpus_reads_its_sources(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"It is {name}.\n")
    inputs = f"one={tmp_path}/[ab].txt:0.5,two={tmp_path}/c.txt:0.5"
    found = Corpus(inputs)
    assert [source.part_of for source in found.sources] == ["one", "one", "two"]
    assert list(open_corpus(inputs)) == [["It is a."], ["It is b."], ["It is c."]]
    message = "b.txt: must be in one source, received 'one' and 'two'"
    with pytest.raises(DataError, match=message):
        Corpus(f"one={tmp_path}/[ab].txt:0.5,two={tmp_path}/[bc].txt:0.5")
    with pytest.raises(DataError, match="no such file.*; a source with a name needs a"):
        Corpus("one=a.txt,two=b.txt")
    for given in (
        *("s.toml,a.txt", "a.txt, s.toml", "s.toml,t.toml", "s.toml:0.5"),
        *("name=s.toml:0.5", "name=s.toml", "a=s.toml:0.5,b=t.txt:0.5"),
    ):
        with pytest.raises(UsageError) as error:
            Corpus(given)
        rule = "--input_file: a TOML file of sources must be the only input, without a "
        assert str(error.value) == f"{rule}name or weight, received {given!r}"
