"""One batch, two batches."""

import pytest

from tidemill.text.plurals import pluralize


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "batch", "1 batch"),
        (0, "batch", "0 batches"),
        (2, "stream", "2 streams"),
        (1200, "row", "1,200 rows"),
        (3, "retry count", "3 retry counts"),
    ],
)
def test_the_noun_agrees_with_the_number(count, noun, text):
    assert pluralize(count, noun) == text
