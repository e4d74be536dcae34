"""A measurement in a process of its own."""

import concurrent.futures
import multiprocessing
from collections.abc import Callable


def alone(function: Callable, *arguments):
    """The result of a function of a module in a fresh process.

    Nothing is inherited: no memory, no threads, no compiled graphs.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()
