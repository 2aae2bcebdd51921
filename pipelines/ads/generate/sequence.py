"""The endless sequence of ad events: what comes at an index follows from the seed and the index alone.

Index `i` is one record, and its moment is `EPOCH` plus `i` seconds. Arrival follows the index; the time
inside the record (`event_time`, `click_time`) is up to 30 minutes before the moment, and never after it. So
in every feed, however it is cut into files and runs, no record is more than 30 minutes behind one that came
before it. A change of a campaign carries the moment itself or up to 15 minutes more: it is announced, and
arrives before every event that it applies to.

The sequence is laid out in blocks of 200 indices. Each holds the same number of records of every kind, in an
order of its own. What looks back (a click at its impression, a duplicate at its original) looks into an
earlier block; where there is none yet, at the very beginning, stands an impression instead.
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
    impression,
    on_its_way,
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
# No campaign runs these when the sequence begins: reports must not lose their impressions.
ADS_WITHOUT_OPENING = 10

_OPENING = -30 * 24 * HOUR  # before every event, late ones included
_ANNOUNCED = 15 * MINUTE // SECOND
_QUICK = 100  # so many impressions of a block may be clicked from the next block
_SLOW_BLOCKS = 15  # the others from this much later, about 50 minutes: within the hour after them, or not
_REDELIVERED_BLOCKS = (1, 6)


@unique
class _Slot(Enum):
    """What a block holds: how many, of which feed, what for."""

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
    """The campaigns that run when the sequence begins: one change an ad, before index 0."""
    random = seeded(seed, 0, "opening")
    for ad in range(ADS - ADS_WITHOUT_OPENING):
        values = change(ad, random.randrange(CAMPAIGN_COUNT), _OPENING, seq=0).values
        yield Record(CAMPAIGNS, values["ad_id"], json_text(values), Kind.FIRST)


def records(seed: int, start: int) -> Iterator[Record]:
    """The sequence from index `start` on: one record an index, without an end."""
    block, skipped = divmod(start, BLOCK)
    while True:
        yield from _block(seed, block)[skipped:]
        block, skipped = block + 1, 0


def late(seed: int, start: int, count: int) -> Iterator[Record]:
    """Impressions of ids of their own that happened three days before index `start` and come only now."""
    random = seeded(seed, start, "late")
    latest = start * SECOND - LATENESS // timedelta(milliseconds=1)
    for number in range(count):
        values = impression(f"imp-late-{start}-{number}", latest - number * MINUTE, random, seed).values
        yield Record(IMPRESSIONS, values["impression_id"], json_text(values), Kind.LATE)


@lru_cache(maxsize=64)
def _layout(seed: int, block: int) -> tuple[_Slot, ...]:
    slots = [slot for slot in _Slot for _ in range(slot.count)]
    seeded(seed, block, "layout").shuffle(slots)
    return tuple(_Slot.IMPRESSION if _looks_before_the_beginning(slot, block) else slot for slot in slots)


def _looks_before_the_beginning(slot: _Slot, block: int) -> bool:
    if slot is _Slot.SLOW_CLICK:
        return block < _SLOW_BLOCKS
    return block == 0 and (slot is _Slot.QUICK_CLICK or slot.kind is Kind.DUPLICATE)


def _indices(seed: int, block: int, wanted: _Slot) -> list[int]:
    return [block * BLOCK + place for place, slot in enumerate(_layout(seed, block)) if slot is wanted]


def _own(seed: int, block: int, feed: str) -> list[int]:
    """The indices of a feed whose records are events of their own, good or bad."""
    layout = enumerate(_layout(seed, block))
    return [block * BLOCK + i for i, slot in layout if slot.feed == feed and slot.kind is not Kind.DUPLICATE]


@lru_cache(maxsize=64)
def _impressions(seed: int, block: int) -> dict[int, Event]:
    random = seeded(seed, block, "impressions")
    return {
        index: impression(f"imp-{index:010d}", index * SECOND - on_its_way(random), random, seed)
        for index in _own(seed, block, IMPRESSIONS)
    }


@lru_cache(maxsize=64)
def _clicks(seed: int, block: int) -> dict[int, Event]:
    random = seeded(seed, block, "clicks")
    # No impression is clicked twice: two blocks look back at a block, each at its own share, without putting
    # back what they draw.
    quick, slow = (_indices(seed, block, slot) for slot in (_Slot.QUICK_CLICK, _Slot.SLOW_CLICK))
    shown = {
        **_drawn(quick, _reported(seed, block - 1)[:_QUICK], random),
        **_drawn(slow, _reported(seed, block - _SLOW_BLOCKS)[_QUICK:], random),
    }
    for index in _own(seed, block, CLICKS):
        if index not in shown:
            time = index * SECOND - on_its_way(random)
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
        # The milliseconds tell apart all changes that could be announced for one second: no two are alike.
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
    """An event of an earlier block that may still come at this index without more disorder than allowed."""
    block = index // BLOCK
    earlier = max(0, block - random.choice(_REDELIVERED_BLOCKS))
    layout = _layout(seed, earlier)
    events = [
        event
        for event_index, event in _EVENTS[feed](seed, earlier).items()
        if layout[event_index % BLOCK].kind is Kind.FIRST and index * SECOND - event.time <= DISORDER_MS
    ]
    return random.choice(events)
