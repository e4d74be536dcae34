"""Times contestants in turns, so that load on the machine affects all of them alike."""

import time
from collections.abc import Callable, Mapping

import tqdm


def seconds_in_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int, title: str = "steps"
) -> dict[str, list[float]]:
    """Calls every contestant once a round; returns the seconds of every call.

    Args:
        contestants: dict. Functions without arguments, by name. Each is called twice
            before, since the first calls compile and allocate.
        rounds: int. Number of rounds.
        title: str. Noun of the items in the progress bar.
    """
    for call in contestants.values():
        call()
        call()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in tqdm.tqdm(range(rounds), desc=title):
        for name, call in contestants.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return seconds
