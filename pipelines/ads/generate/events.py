"""The values of one event: an impression, a click on it, a change of a campaign.

All times are whole milliseconds since `EPOCH`.
"""

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from random import Random

from pipelines.ads.generate.records import Values, iso

ADS = 200
CAMPAIGN_COUNT = 20
DISORDER = timedelta(minutes=30)

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DISORDER_MS = DISORDER // timedelta(milliseconds=1)

_PAGES = 50
_USERS = 2_000
_ACTIVE_USERS = 60
_PERIOD = 20 * MINUTE  # the same few users are active in a period, so that their sessions come to an end
_MOST_COSTLY = 20_000


@dataclass(frozen=True, slots=True)
class Event:
    """What happened.

    Attributes:
        time: When, in milliseconds since `EPOCH`: its event time, or from when a change applies.
        values: What its record says.
    """

    time: int
    values: Values


def seeded(seed: int, number: int, what: str) -> Random:
    """Random numbers that are the same on every machine for the same arguments; nothing here is a secret."""
    return Random(f"{seed}/{number}/{what}")  # noqa: S311


def on_its_way(random: Random) -> int:
    """How long a record takes to arrive: most less than a minute, three in ten up to half an hour."""
    return random.randint(0, random.choice((MINUTE,) * 7 + (DISORDER_MS,) * 3))


def impression(impression_id: str, time: int, random: Random, seed: int) -> Event:
    """An impression of some ad, seen by a user who is active at the time."""
    return Event(
        time,
        {
            "impression_id": impression_id,
            "ad_id": _ad_id(random.randrange(ADS)),
            "user_id": random.choice(_active_users(seed, time // _PERIOD)),
            "page": f"/page/{random.randrange(_PAGES)}",
            "cost_micros": random.randrange(_MOST_COSTLY),
            "event_time": iso(time),
        },
    )


def click(index: int, shown: Event, random: Random) -> Event:
    """A click on an impression, such that it can arrive at this index without more disorder than allowed."""
    latest = index * SECOND - shown.time
    soonest = max(0, latest - DISORDER_MS)
    # A join goes wrong at the edges of its range first, so they occur wherever the disorder leaves room.
    edges = [edge for edge in (0, HOUR, HOUR + 1) if soonest <= edge <= latest]
    after = random.choice(edges) if edges and random.randrange(4) == 0 else random.randint(soonest, latest)
    return Event(
        shown.time + after,
        {
            "click_id": f"clk-{index:010d}",
            "impression_id": shown.values["impression_id"],
            "ad_id": shown.values["ad_id"],
            "user_id": shown.values["user_id"],
            "click_time": iso(shown.time + after),
        },
    )


def change(ad: int, campaign: int | None, time: int, seq: int) -> Event:
    """An ad goes to a campaign, or with None to none."""
    return Event(
        time,
        {
            "ad_id": _ad_id(ad),
            "campaign_id": None if campaign is None else f"cmp-{campaign:02d}",
            "campaign": None if campaign is None else f"Campaign {campaign}",
            "op": "delete" if campaign is None else "upsert",
            "seq": seq,
            "changed_at": iso(time),
        },
    )


def _ad_id(ad: int) -> str:
    return f"ad-{ad:03d}"


@lru_cache(maxsize=64)
def _active_users(seed: int, period: int) -> tuple[str, ...]:
    users = seeded(seed, period, "users").sample(range(_USERS), _ACTIVE_USERS)
    return tuple(f"user-{user:04d}" for user in users)
