"""One record of an ad feed: what it is there for, its text, and the ways in which a text can be bad."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import Random
from typing import Any

IMPRESSIONS = "ad-impressions"
CLICKS = "ad-clicks"
CAMPAIGNS = "ad-campaigns"
# In the order in which they arrive: a change of a campaign comes before the impressions that it applies to.
FEEDS = (CAMPAIGNS, IMPRESSIONS, CLICKS)

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Values = dict[str, Any]


class Kind(StrEnum):
    """What a record is there for."""

    FIRST = "first"
    """An impression, a click or a change of a campaign, for the first time."""
    DUPLICATE = "duplicate"
    """A record that came before, once more and unchanged."""
    UNPARSABLE = "unparsable"
    """No JSON, or a value of the wrong type."""
    MISSING_ID = "missing_id"
    """One of its ids is null or absent."""
    NEGATIVE_COST = "negative_cost"
    """An impression that costs less than nothing."""
    LATE = "late"
    """An impression, seen for the first time days after it happened."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a feed's file, or one message of its topic.

    Attributes:
        feed: The feed's name.
        key: What related records share: the impression's id, or the ad's for campaigns.
        text: The JSON text, or what was left of it.
        kind: What it is there for.
    """

    feed: str
    key: str
    text: str
    kind: Kind


def iso(milliseconds: int) -> str:
    """A moment, in milliseconds since `EPOCH`, as ISO-8601 in UTC."""
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def json_text(values: Values) -> str:
    """Values as one line of JSON."""
    return json.dumps(values, separators=(",", ":"))


def without_id(values: Values, ids: tuple[str, ...], random: Random) -> Values:
    """The values with one of the ids null or absent."""
    lost = random.choice(ids)
    if random.random() < 0.5:  # noqa: PLR2004 - as often as not
        return {**values, lost: None}
    return {name: value for name, value in values.items() if name != lost}


def broken(values: Values, typed: str, random: Random) -> str:
    """The values as a text that cannot be parsed: cut short, no JSON at all, or with a word in `typed`."""
    text = json_text(values)
    match random.randrange(3):
        case 0:
            return text[: len(text) // 2]
        case 1:
            return f"<html>502 Bad Gateway {text[1:9]}</html>"
        case _:
            return json_text({**values, typed: "unknown"})
