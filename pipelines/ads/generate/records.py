"""A record of an ad feed: its purpose, its line of text, and the ways in which the line can be invalid."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import Random
from typing import Any

IMPRESSIONS = "ad-impressions"
CLICKS = "ad-clicks"
CAMPAIGNS = "ad-campaigns"
# In the order of arrival: a change of a campaign arrives before the impressions that it applies to.
FEEDS = (CAMPAIGNS, IMPRESSIONS, CLICKS)

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Values = dict[str, Any]


class Kind(StrEnum):
    """The purpose of a record."""

    FIRST = "first"
    """An impression, a click or a change of a campaign that arrives for the first time."""
    DUPLICATE = "duplicate"
    """An unchanged copy of an earlier record."""
    UNPARSABLE = "unparsable"
    """Invalid JSON, or a value of the wrong type."""
    MISSING_ID = "missing_id"
    """A record in which one of the ids is null or absent."""
    NEGATIVE_COST = "negative_cost"
    """An impression with a negative cost."""
    LATE = "late"
    """An impression that arrives for the first time days after its event time."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a feed's file, or one message of its topic.

    Attributes:
        feed: The feed's name.
        key: The id that related records share: the impression's id, or the ad's id for campaigns.
        text: The line: JSON, or an invalid part of it.
        kind: The purpose of the record.
    """

    feed: str
    key: str
    text: str
    kind: Kind


def iso(milliseconds: int) -> str:
    """Format a time in milliseconds since `EPOCH` as ISO-8601 in UTC."""
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def json_text(values: Values) -> str:
    """Format values as one line of JSON."""
    return json.dumps(values, separators=(",", ":"))


def without_id(values: Values, ids: tuple[str, ...], random: Random) -> Values:
    """Return the values with one of the ids null or absent."""
    missing = random.choice(ids)
    if random.random() < 0.5:  # noqa: PLR2004 - as often as not
        return {**values, missing: None}
    return {name: value for name, value in values.items() if name != missing}


def broken(values: Values, typed: str, random: Random) -> str:
    """Format the values as a line that cannot be parsed: cut short, not JSON, or with a word in the field `typed`."""
    text = json_text(values)
    match random.randrange(3):
        case 0:
            return text[: len(text) // 2]
        case 1:
            return f"<html>502 Bad Gateway {text[1:9]}</html>"
        case _:
            return json_text({**values, typed: "unknown"})
