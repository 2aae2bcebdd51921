"""The endless sequence of ad events. The seed and the index alone determine each record.

Index `i` is one record, and it arrives at `EPOCH` plus `i` seconds. Records arrive in the order of their indices. The
time inside a record (`event_time`, `click_time`) is up to 30 minutes before its arrival and never after it. In every
feed, however it is cut into files and runs, no record is therefore more than 30 minutes behind an earlier one. The
time of a campaign's change is its arrival or up to 15 minutes later: the change is announced, and arrives before every
event that it applies to.

The sequence consists of blocks of 200 indices. Each block contains the same number of records of every kind, in its
own order. A record that refers to another one (a click to its impression, a duplicate to its original) refers to an
earlier block. At the beginning, where there is no earlier block, an impression replaces it.
"""

from collections.abc import Iterator
from datetime import timedelta
from enum import Enum, unique
from functools import lru_cache
from random import Random

from pipelines.ads.generate.events import (
    ADS,
    CAMPAIGN_COUNT,
    DISORDER_MS,
    HOUR,
    MINUTE,
    SECOND,
    Event,
    change,
    click,
    delay,
    impression,
    seeded,
)
from pipelines.ads.generate.records import (
    CAMPAIGNS,
    CLICKS,
    IMPRESSIONS,
    Kind,
    Record,
    broken,
    json_text,
    without_id,
)

BLOCK = 200
LATENESS = timedelta(days=3)
# These ads are in no campaign when the sequence begins: reports must not lose their impressions.
ADS_WITHOUT_OPENING = 10

_OPENING = -30 * 24 * HOUR  # before every event, late ones included
_ANNOUNCED = 15 * MINUTE // SECOND
_QUICK = 100  # the first impressions of a block, which clicks of the next block may refer to
_SLOW_BLOCKS = 15  # clicks on the others arrive about 50 minutes later: some within the hour, some after it
_REDELIVERED_BLOCKS = (1, 6)


@unique
class _Slot(Enum):
    """A kind of record in a block: its number, its feed and its purpose."""

    IMPRESSION = (138, IMPRESSIONS, Kind.FIRST)
    QUICK_CLICK = (30, CLICKS, Kind.FIRST)
    SLOW_CLICK = (8, CLICKS, Kind.FIRST)
    STRAY_CLICK = (2, CLICKS, Kind.FIRST)
    UPSERT = (5, CAMPAIGNS, Kind.FIRST)
    DELETE = (1, CAMPAIGNS, Kind.FIRST)
    DUPLICATE_IMPRESSION = (5, IMPRESSIONS, Kind.DUPLICATE)
    DUPLICATE_CLICK = (2, CLICKS, Kind.DUPLICATE)
    DUPLICATE_CHANGE = (1, CAMPAIGNS, Kind.DUPLICATE)
    UNPARSABLE_IMPRESSION = (2, IMPRESSIONS, Kind.UNPARSABLE)
    UNPARSABLE_CLICK = (1, CLICKS, Kind.UNPARSABLE)
    UNPARSABLE_CHANGE = (1, CAMPAIGNS, Kind.UNPARSABLE)
    IMPRESSION_WITHOUT_ID = (1, IMPRESSIONS, Kind.MISSING_ID)
    CLICK_WITHOUT_ID = (1, CLICKS, Kind.MISSING_ID)
    NEGATIVE_COST = (2, IMPRESSIONS, Kind.NEGATIVE_COST)

    def __init__(self, count: int, feed: str, kind: Kind) -> None:
        self.count = count
        self.feed = feed
        self.kind = kind


_IDS = {IMPRESSIONS: ("impression_id", "ad_id", "user_id"), CLICKS: ("click_id", "impression_id")}
_TYPED = {IMPRESSIONS: "cost_micros", CLICKS: "click_time", CAMPAIGNS: "seq"}


def opening(seed: int) -> Iterator[Record]:
    """Yield the campaigns at the beginning of the sequence: one change per ad, before index 0."""
    random = seeded(seed, 0, "opening")
    for ad in range(ADS - ADS_WITHOUT_OPENING):
        values = change(ad, random.randrange(CAMPAIGN_COUNT), _OPENING, seq=0).values
        yield Record(CAMPAIGNS, values["ad_id"], json_text(values), Kind.FIRST)


def records(seed: int, start: int) -> Iterator[Record]:
    """Yield the sequence from index `start` on: one record per index, without end."""
    block, skipped = divmod(start, BLOCK)
    while True:
        yield from _block(seed, block)[skipped:]
        block, skipped = block + 1, 0


def late(seed: int, start: int, count: int) -> Iterator[Record]:
    """Yield impressions with new ids whose event times are three days before index `start`."""
    random = seeded(seed, start, "late")
    latest = start * SECOND - LATENESS // timedelta(milliseconds=1)
    for number in range(count):
        values = impression(f"imp-late-{start}-{number}", latest - number * MINUTE, random, seed).values
        yield Record(IMPRESSIONS, values["impression_id"], json_text(values), Kind.LATE)


@lru_cache(maxsize=64)
def _layout(seed: int, block: int) -> tuple[_Slot, ...]:
    slots = [slot for slot in _Slot for _ in range(slot.count)]
    seeded(seed, block, "layout").shuffle(slots)
    return tuple(_Slot.IMPRESSION if _refers_before_the_beginning(slot, block) else slot for slot in slots)


def _refers_before_the_beginning(slot: _Slot, block: int) -> bool:
    if slot is _Slot.SLOW_CLICK:
        return block < _SLOW_BLOCKS
    return block == 0 and (slot is _Slot.QUICK_CLICK or slot.kind is Kind.DUPLICATE)


def _indices(seed: int, block: int, wanted: _Slot) -> list[int]:
    return [block * BLOCK + i for i, slot in enumerate(_layout(seed, block)) if slot is wanted]


def _own(seed: int, block: int, feed: str) -> list[int]:
    """Return the indices of a feed whose records are new events, valid or invalid."""
    layout = enumerate(_layout(seed, block))
    return [block * BLOCK + i for i, slot in layout if slot.feed == feed and slot.kind is not Kind.DUPLICATE]


@lru_cache(maxsize=64)
def _impressions(seed: int, block: int) -> dict[int, Event]:
    random = seeded(seed, block, "impressions")
    return {
        index: impression(f"imp-{index:010d}", index * SECOND - delay(random), random, seed)
        for index in _own(seed, block, IMPRESSIONS)
    }


@lru_cache(maxsize=64)
def _clicks(seed: int, block: int) -> dict[int, Event]:
    random = seeded(seed, block, "clicks")
    # No impression is clicked twice: two blocks refer to a block, each to its own share, and draw without
    # replacement.
    quick, slow = (_indices(seed, block, slot) for slot in (_Slot.QUICK_CLICK, _Slot.SLOW_CLICK))
    shown = {
        **_drawn(quick, _reported(seed, block - 1)[:_QUICK], random),
        **_drawn(slow, _reported(seed, block - _SLOW_BLOCKS)[_QUICK:], random),
    }
    for index in _own(seed, block, CLICKS):
        if index not in shown:
            time = index * SECOND - delay(random)
            shown[index] = impression(f"imp-unreported-{index}", time, random, seed)
    return {index: click(index, on, random) for index, on in shown.items()}


def _reported(seed: int, block: int) -> list[Event]:
    impressions = _impressions(seed, block)
    return [impressions[index] for index in _indices(seed, block, _Slot.IMPRESSION)]


def _drawn(indices: list[int], impressions: list[Event], random: Random) -> dict[int, Event]:
    return dict(zip(indices, random.sample(impressions, len(indices)), strict=True))


@lru_cache(maxsize=64)
def _changes(seed: int, block: int) -> dict[int, Event]:
    random = seeded(seed, block, "changes")
    events = {}
    for index in _own(seed, block, CAMPAIGNS):
        # The milliseconds distinguish all changes that could be announced for the same second.
        time = (index + random.randrange(_ANNOUNCED)) * SECOND + index % SECOND
        deleted = _layout(seed, block)[index % BLOCK] is _Slot.DELETE
        campaign = None if deleted else random.randrange(CAMPAIGN_COUNT)
        events[index] = change(random.randrange(ADS), campaign, time, seq=1 + time)
    return events


_EVENTS = {IMPRESSIONS: _impressions, CLICKS: _clicks, CAMPAIGNS: _changes}
_KEYS = {IMPRESSIONS: "impression_id", CLICKS: "impression_id", CAMPAIGNS: "ad_id"}


@lru_cache(maxsize=8)
def _block(seed: int, block: int) -> tuple[Record, ...]:
    random = seeded(seed, block, "records")
    first = block * BLOCK
    return tuple(_record(seed, first + i, slot, random) for i, slot in enumerate(_layout(seed, block)))


def _record(seed: int, index: int, slot: _Slot, random: Random) -> Record:
    if slot.kind is Kind.DUPLICATE:
        values = _original(seed, index, slot.feed, random).values
    else:
        values = _EVENTS[slot.feed](seed, index // BLOCK)[index].values
    key = values[_KEYS[slot.feed]]
    match slot.kind:
        case Kind.UNPARSABLE:
            text = broken(values, _TYPED[slot.feed], random)
        case Kind.MISSING_ID:
            text = json_text(without_id(values, _IDS[slot.feed], random))
        case Kind.NEGATIVE_COST:
            text = json_text({**values, "cost_micros": -1 - values["cost_micros"]})
        case _:
            text = json_text(values)
    return Record(slot.feed, key, text, slot.kind)


def _original(seed: int, index: int, feed: str, random: Random) -> Event:
    """Draw an event of an earlier block that may arrive at this index within the allowed disorder."""
    block = index // BLOCK
    drawn = max(0, block - random.choice(_REDELIVERED_BLOCKS))
    # The first block has few clicks, and those can be too old a few blocks later.
    for earlier in range(drawn, block):
        layout = _layout(seed, earlier)
        events = [
            event
            for event_index, event in _EVENTS[feed](seed, earlier).items()
            if layout[event_index % BLOCK].kind is Kind.FIRST and index * SECOND - event.time <= DISORDER_MS
        ]
        if events:
            return random.choice(events)
    raise AssertionError(f"no event of {feed} can be repeated at index {index} of seed {seed}")
