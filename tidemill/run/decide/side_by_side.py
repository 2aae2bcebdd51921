"""Questions about many streams, asked side by side: most of their time is spent waiting for a store or a broker."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# A decision is about twelve round trips, one after another: with 30 ms each, 100 streams take less than 3 s.
_THREADS = 64


@contextmanager
def side_by_side(ask: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[list[Future[Answer]]]:
    """Ask about each item in a thread; the answers are in the order of the items, and an error is that of its item.

    At the end of the block those that have not begun are dropped, and nothing waits for the others.
    """
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="decide")
    try:
        yield [pool.submit(ask, item) for item in items]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
