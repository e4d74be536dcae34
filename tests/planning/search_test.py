"""How few compilations find the largest size that fits, and the fastest."""

import pytest

from albert_tf.planning.search import Search, halvings

SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]


class Step:
    """One that needs `fixed + 10` bytes a row of 1,000 and is fastest with `fast`."""

    def __init__(self, size, room=1000.0, fixed=0.0, fast=16):
        self.size, self.temporaries = size, fixed + 10.0 * size
        self.fits = self.temporaries <= room
        self.seconds, self.least = max(size / fast, fast / size), 0.99


def search(scale=1.0, room=1000.0, **options):
    make = lambda size: Step(size, room, **options)  # noqa: E731
    return Search(make, SIZES, lambda size: 10.0 * size / scale, room)


@pytest.mark.parametrize("room", [10.0, 70.0, 1000.0, 2560.0, 9999.0])
@pytest.mark.parametrize("fixed", [0.0, 9.0])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_the_largest_that_fits(room, scale, fixed):
    one = search(scale, room, fixed=fixed)
    fitting = [size for size in SIZES if Step(size, room, fixed).fits]
    index = one.largest(len(SIZES))
    found = [] if index is None else [SIZES[index]]
    assert found == fitting[-1:]
    assert len(one.found) <= 4


def test_what_cannot_get_faster_is_not_compiled():
    one = search(fast=16)
    one.fastest(SIZES.index(16))
    assert [step.size for step in one.found.values()] == [16]


@pytest.mark.parametrize("fast", SIZES)
@pytest.mark.parametrize("start", range(len(SIZES)))
def test_the_fastest_is_found_from_anywhere(fast, start):
    one = search(room=1e9, fast=fast)
    one.fastest(start)
    assert min(one.found.values(), key=lambda step: step.seconds).size == fast
    # No more than the way there, one step further, and one in the wrong direction.
    assert len(one.found) <= abs(SIZES.index(fast) - start) + 3


def test_no_size_is_compiled_that_will_not_fit():
    one = search(room=340.0, fast=256)
    one.fastest(SIZES.index(16))
    assert sorted(step.size for step in one.found.values()) == [8, 16, 32]
    assert one.most() == 32


def test_a_start_that_is_too_large_is_left():
    one = search(scale=9.0, room=50.0, fast=1)
    one.fastest(SIZES.index(16))
    assert min(step.size for step in one.found.values()) == 1
    one = search(room=5.0)
    one.fastest(3)
    assert not any(step.fits for step in one.found.values())


def test_halvings_divide():
    assert halvings(256) == SIZES
    assert halvings(12) == [1, 3, 6, 12]
    assert halvings(7) == [1, 7] and halvings(1) == [1]
