"""Counted nouns: "1 batch", "2 batches"."""

from collections.abc import Sequence


def pluralize(count: int, noun: str) -> str:
    """Return a number and its noun, such as `1 batch` or `1,200 rows`.

    Args:
        noun: A regular noun in the singular.
    """
    if count == 1:
        return f"{count} {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'z', 'ch', 'sh')) else 's'}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """Return the first of some names, and how many more there are: `a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
