from albert_tf.errors import count_of, list_counts


def test_one_is_singular():
    counts = [count_of(n, "example") for n in (0, 1, 2000)]
    assert counts == ["0 examples", "1 example", "2,000 examples"]


def test_counts_are_listed_as_words():
    assert list_counts({"short": 1200, "long": 3}) == "short 1,200, long 3"
    assert list_counts({}) == "none"
