"""The values of an event: an impression, a click on it, or a change of a campaign.

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
_PERIOD = 20 * MINUTE  # a few users are active in each period, so that their sessions end
_RETARGETED_USERS = 3  # of the active ones: each sees only one ad in the period
_HIGHEST_COST = 20_000


@dataclass(frozen=True, slots=True)
class Event:
    """An event.

    Attributes:
        time: The event time, or the time from which a change applies, in milliseconds since `EPOCH`.
        values: The fields of its record.
    """

    time: int
    values: Values


def seeded(seed: int, number: int, purpose: str) -> Random:
    """Return random numbers that are equal on every machine for equal arguments; they protect no secret."""
    return Random(f"{seed}/{number}/{purpose}")  # noqa: S311


def delay(random: Random) -> int:
    """Draw the delay of a record: usually less than a minute, in three of ten cases up to half an hour."""
    return random.randint(0, random.choice((MINUTE,) * 7 + (DISORDER_MS,) * 3))


def impression(impression_id: str, time: int, random: Random, seed: int) -> Event:
    """Create an impression of a random ad, seen by a user who is active at the time.

    A few users see one ad only, and see it too often.
    """
    period = time // _PERIOD
    ad, user = random.randrange(ADS), random.choice(_active_users(seed, period))
    return Event(
        time,
        {
            "impression_id": impression_id,
            "ad_id": _ad_id(_retargeted_users(seed, period).get(user, ad)),
            "user_id": user,
            "page": f"/page/{random.randrange(_PAGES)}",
            "cost_micros": random.randrange(_HIGHEST_COST),
            "event_time": iso(time),
        },
    )


def click(index: int, shown: Event, random: Random) -> Event:
    """Create a click on an impression that can arrive at this index within the allowed disorder."""
    latest = index * SECOND - shown.time
    soonest = max(0, latest - DISORDER_MS)
    # A wrong join fails at the edges of its range first, so the edges occur wherever the disorder allows them.
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
    """Create a change that moves an ad to a campaign, or out of its campaign with None."""
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


@lru_cache(maxsize=64)
def _retargeted_users(seed: int, period: int) -> dict[str, int]:
    """Return the only ad of each user who sees one only."""
    ads = seeded(seed, period, "ads").sample(range(ADS), _RETARGETED_USERS)
    return dict(zip(_active_users(seed, period), ads, strict=False))
