"""Counted nouns: "1 batch", "2 batches"."""


def pluralize(count: int, noun: str) -> str:
    """Return a number and its noun, such as `1 batch` or `1,200 rows`.

    Args:
        noun: A regular noun in the singular.
    """
    if count == 1:
        return f"{count} {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'z', 'ch', 'sh')) else 's'}"
