"""Work on many files of a store: side by side where each of them costs a round trip."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidemill.storage.store import Store

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_THREADS = 32


def for_each(store: Store, act: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """Return what a function returns for each item, in their order; raise the first of its errors.

    Args:
        store: Where the files are.
        act: The function. On a store without folders it is called in threads.
        items: The items.
    """
    if store.has_folders:
        return [act(item) for item in items]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="store") as pool:
        return list(pool.map(act, items))
