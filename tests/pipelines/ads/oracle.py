"""The expected content of every table of `ads`, computed from the input records alone.

It is plain Python, without Tidemill and without Spark, so that both cannot contain the same mistake. A table is a
multiset: a `Counter` of tuples with the columns of `COLUMNS`, in that order. A timestamp is an integer: the
microseconds since 1970 in UTC. A date is an ISO string, null is None.

`expected(feeds)` is valid if no record is behind its watermark: then neither the order of the records nor their cut
into runs matters. If records arrive late, the two `unique_*` streams need their batches:
`expected(feeds, batches={"unique_impressions": [...]})`. The rows that these two keep determine the tables after them,
as long as none of the rows is late there.

The rules of Spark below were observed with pyspark 4.2.0 (`test_oracle.py` repeats the observation):

- A watermark is the newest event time of a batch, in whole milliseconds, minus the delay. It is never below 0 and
  never decreases. Of several watermarks the lowest counts, and it is 0 as long as one input had no row.
- A row is late if its time is at or before the watermark of the *previous* batch. State is evicted by the watermark
  of its own batch.
- A window, and a session, is over when its end is at or before the watermark. A timer of a stateful processor fires
  when its time is at or before the watermark.
- A session includes an event at its very end: exactly 30 minutes after the last one.
- An impression without a click is emitted when its time plus the hour is before the watermark: at that very moment a
  click could still arrive.
- An id is forgotten when its first time plus the delay is at or before the watermark.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]
Table = Counter[Row]

_MICROSECOND = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1) // _MICROSECOND
HOUR = 60 * MINUTE
DELAY = 2 * HOUR
GAP = 30 * MINUTE
ALERT_WINDOW = 10 * MINUTE
ALLOWED = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = 1 << 62  # later than every time
UNPARSABLE = "unparsable"
NO_CAMPAIGN = "(none)"

_IMPRESSION = ("impression_id", "ad_id", "user_id", "page", "cost_micros", "event_time")
_CLICK = ("click_id", "impression_id", "ad_id", "user_id", "click_time")
COLUMNS: dict[str, tuple[str, ...]] = {
    "impressions": (*_IMPRESSION, "event_date"),
    "clicks": _CLICK,
    "campaigns": ("ad_id", "campaign_id", "campaign", "seq", "changed_at", "__START_AT", "__END_AT"),
    "unique_impressions": (*_IMPRESSION, "event_date"),
    "unique_clicks": _CLICK,
    "attribution": (*_IMPRESSION, "click_id", "click_time", "campaign_id", "campaign"),
    "campaign_minutes": ("minute", "campaign_id", "impressions", "spend_micros"),
    "campaign_totals": ("campaign_id", "impressions", "spend_micros"),
    "user_sessions": ("user_id", "session_start", "session_end", "impressions", "spend_micros"),
    "frequency_alerts": ("user_id", "ad_id", "window_start", "impressions", "first_seen", "last_seen"),
    # The raw text, and the sorted names of the violated rules.
    "impressions__quarantine": ("raw", "violated"),
    "clicks__quarantine": ("raw", "violated"),
    "campaigns__quarantine": ("raw", "violated"),
}
FEED_OF = {"impressions": "ad-impressions", "clicks": "ad-clicks", "campaigns": "ad-campaigns"}
_NUMBERS = {"cost_micros", "seq"}
_TIMES = {"event_time", "click_time", "changed_at"}
_TIME_AT = {"impressions": 5, "clicks": 4}
_FIELDS = {
    "impressions": _IMPRESSION,
    "clicks": _CLICK,
    "campaigns": ("ad_id", "campaign_id", "campaign", "op", "seq", "changed_at"),
}


class NotDefinedError(Exception):
    """The input does not determine the tables."""


@dataclass(frozen=True)
class Batch:
    """One batch of a `unique_*` stream.

    Attributes:
        rows: The rows that it read, with the columns of the upstream table (`COLUMNS`).
        watermark_ms: Its watermark, the `batchWatermarkMs` of its entry in `offsets/`.
    """

    rows: Iterable[Row]
    watermark_ms: int


@dataclass(frozen=True)
class Expected:
    """The expected tables after a run over all of the input.

    Attributes:
        tables: The rows of every table by its name.
        late: The number of late rows by stream; only for streams whose batches were given.
    """

    tables: dict[str, Table]
    late: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, table: str) -> Table:
        return self.tables[table]


def expected(
    feeds: Path | Mapping[str, Iterable[str]], batches: Mapping[str, Sequence[Batch]] | None = None
) -> Expected:
    """Return every table after all of the input was read and the last watermark took effect.

    Args:
        feeds: A landing folder with one folder per feed, or the records by feed.
        batches: The batches of `unique_impressions` and of `unique_clicks`, if records arrive late.
    """
    records = feeds if isinstance(feeds, Mapping) else records_of(feeds)
    good: dict[str, list[Row]] = {}
    tables: dict[str, Table] = {}
    late: dict[str, int] = {}
    for stream, feed in FEED_OF.items():
        good[stream], tables[f"{stream}__quarantine"] = parse(stream, records.get(feed, ()))
    tables["impressions"] = Counter(good["impressions"])
    tables["clicks"] = Counter(good["clicks"])
    versions = _versions(good["campaigns"])
    tables["campaigns"] = Counter(version for of_ad in versions.values() for version in of_ad)
    for stream, source in (("unique_impressions", "impressions"), ("unique_clicks", "clicks")):
        if batches and stream in batches:
            tables[stream], late[stream] = _unique_by_batch(batches[stream], _TIME_AT[source])
        else:
            tables[stream] = _unique(good[source])
    impressions = [(*row[:6], *_campaign(versions, row)) for row in tables["unique_impressions"].elements()]
    tables["attribution"] = _attribution(impressions, list(tables["unique_clicks"].elements()))
    tables["campaign_minutes"] = _campaign_minutes(impressions)
    tables["campaign_totals"] = _totals((row[6] or NO_CAMPAIGN, row[4]) for row in impressions)
    tables["user_sessions"] = _user_sessions(impressions)
    tables["frequency_alerts"] = _frequency_alerts(impressions)
    return Expected(tables, late)


def records_of(landing: Path) -> dict[str, list[str]]:
    """Return the records of every feed, in the order of the files' modification times."""
    records = {}
    for feed in FEED_OF.values():
        files = sorted((landing / feed).glob("*.json"), key=lambda file: (file.stat().st_mtime_ns, file.name))
        records[feed] = [line for file in files for line in file.read_text("utf-8").split("\n")]
    return records


def parse(stream: str, lines: Iterable[str]) -> tuple[list[Row], Table]:
    """Return the valid rows of an ingest stream, in their order, and its quarantine.

    A row of `campaigns` is a change: `ad_id, campaign_id, campaign, op, seq, changed_at`.

    Raises:
        NotDefinedError: Spark parses a value in its own way, which the oracle does not define.
    """
    rows: list[Row] = []
    quarantine: Table = Counter()
    for line in lines:
        if not line.strip():
            continue
        row = _parsed(line, _FIELDS[stream])
        if row is None:
            quarantine[line, (UNPARSABLE,)] += 1
        elif violated := tuple(sorted(name for name, holds in _RULES[stream].items() if not holds(row))):
            quarantine[line, violated] += 1
        else:
            values = tuple(row.values())
            rows.append((*values, _date(row["event_time"])) if stream == "impressions" else values)
    return rows, quarantine


def microseconds(text: str) -> int:
    """Convert an ISO-8601 time with its offset into microseconds since 1970 in UTC."""
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _date(time: int) -> str:
    return (_EPOCH + time * _MICROSECOND).date().isoformat()


def _parsed(line: str, fields: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of a record by field, or None if it is unparsable."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    if not isinstance(record, dict):
        raise NotDefinedError(f"JSON, but not an object: {line!r}")
    row: dict[str, Any] = {}
    for name in fields:
        value = record.get(name)
        if value is None or (type(value) is int and name in _NUMBERS):
            row[name] = value
        elif not isinstance(value, str) or (not value and name in _NUMBERS | _TIMES):
            raise NotDefinedError(f"{name} is {value!r} in {line!r}")
        elif name in _NUMBERS:
            return None
        elif name in _TIMES:
            try:
                row[name] = microseconds(value)
            except ValueError:
                return None
        else:
            row[name] = value
    return row


_RULES: dict[str, dict[str, Callable[[dict[str, Any]], bool]]] = {
    "impressions": {
        "has_impression_id": lambda row: bool(row["impression_id"]),
        "has_ad_id": lambda row: bool(row["ad_id"]),
        "has_user_id": lambda row: bool(row["user_id"]),
        "has_event_time": lambda row: row["event_time"] is not None,
        "cost_not_negative": lambda row: row["cost_micros"] is not None and row["cost_micros"] >= 0,
    },
    "clicks": {
        "has_click_id": lambda row: bool(row["click_id"]),
        "has_impression_id": lambda row: bool(row["impression_id"]),
        "has_click_time": lambda row: row["click_time"] is not None,
    },
    "campaigns": {
        "has_ad_id": lambda row: bool(row["ad_id"]),
        "has_seq": lambda row: row["seq"] is not None,
        "has_changed_at": lambda row: row["changed_at"] is not None,
        "op_known": lambda row: row["op"] in ("upsert", "delete"),
        "has_campaign_id": lambda row: row["op"] == "delete" or bool(row["campaign_id"]),
    },
}


def _versions(changes: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the versions of each ad, oldest first. A version is valid until the next change, including a delete."""
    changes_of: dict[str, dict[int, Row]] = defaultdict(dict)
    for change in changes:
        ad_id, seq = change[0], change[4]
        if changes_of[ad_id].setdefault(seq, change) != change:
            raise ValueError(
                f"two different changes of {ad_id} have seq {seq}: which one counts is not defined"
            )
    versions: dict[str, list[Row]] = {}
    for ad_id, by_seq in changes_of.items():
        ordered = [by_seq[seq] for seq in sorted(by_seq)]
        ends = [change[5] for change in ordered[1:]] + [None]
        versions[ad_id] = [
            (ad_id, campaign_id, campaign, seq, changed_at, changed_at, end)
            for (_, campaign_id, campaign, op, seq, changed_at), end in zip(ordered, ends, strict=True)
            if op == "upsert"
        ]
    return versions


def _campaign(versions: Mapping[str, list[Row]], impression: Row) -> tuple[str | None, str | None]:
    """Return the campaign of an impression's ad at its time, or nulls."""
    ad_id, time = impression[1], impression[5]
    for _, campaign_id, campaign, _, _, start, end in versions.get(ad_id, ()):
        if start <= time and (end is None or time < end):
            return campaign_id, campaign
    return None, None


def _unique(rows: Iterable[Row]) -> Table:
    by_id: dict[str, Row] = {}
    for row in rows:
        if by_id.setdefault(row[0], row) != row:
            raise NotDefinedError(f"two different records have the id {row[0]}")
    return Counter(by_id.values())


def _unique_by_batch(batches: Iterable[Batch], time_at: int) -> tuple[Table, int]:
    """Return the rows that a deduplication keeps batch by batch, and the number of late rows."""
    kept: Table = Counter()
    late = 0
    forgotten_at: dict[str, int] = {}
    watermark_before = 0
    for batch in batches:
        for row in batch.rows:
            if row[time_at] <= watermark_before:
                late += 1
            elif row[0] not in forgotten_at:
                forgotten_at[row[0]] = row[time_at] + DELAY
                kept[row] += 1
        watermark_before = batch.watermark_ms * 1000
        forgotten_at = {key: at for key, at in forgotten_at.items() if at > watermark_before}
    return kept, late


def _watermark(times: Iterable[int]) -> int:
    newest = max(times, default=0)
    return max(0, newest // 1000 * 1000 - DELAY)


def _attribution(impressions: list[Row], clicks: list[Row]) -> Table:
    clicks_on: dict[str, list[Row]] = defaultdict(list)
    for click in clicks:
        clicks_on[click[1]].append(click)
    watermark = min(_watermark(row[5] for row in impressions), _watermark(row[4] for row in clicks))
    table: Table = Counter()
    for *values, campaign_id, campaign in impressions:
        time = values[5]
        within = [click for click in clicks_on[values[0]] if time <= click[4] <= time + HOUR]
        for click in within:
            table[*values, click[0], click[4], campaign_id, campaign] += 1
        if not within and time + HOUR < watermark:
            table[*values, None, None, campaign_id, campaign] += 1
    return table


def _campaign_minutes(impressions: list[Row]) -> Table:
    watermark = _watermark(row[5] for row in impressions)
    return _totals(
        (row[5] // MINUTE * MINUTE, row[6] or NO_CAMPAIGN, row[4])
        for row in impressions
        if row[5] // MINUTE * MINUTE + MINUTE <= watermark
    )


def _totals(costs: Iterable[Row]) -> Table:
    """Return the count and the sum of the last column, by all columns before it."""
    by_key: dict[Row, list[int]] = defaultdict(list)
    for *key, cost in costs:
        by_key[tuple(key)].append(cost)
    return Counter((*key, len(of_key), sum(of_key)) for key, of_key in by_key.items())


def _user_sessions(impressions: list[Row]) -> Table:
    watermark = _watermark(row[5] for row in impressions)
    by_user: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in impressions:
        by_user[row[2]].append((row[5], row[4]))
    table: Table = Counter()
    for user_id, shown in by_user.items():
        session: list[tuple[int, int]] = []
        for time, cost in [*sorted(shown), (_NEVER, 0)]:
            if session and time > session[-1][0] + GAP:
                end = session[-1][0] + GAP
                if end <= watermark:
                    table[user_id, session[0][0], end, len(session), sum(cost for _, cost in session)] += 1
                session = []
            session.append((time, cost))
    return table


def _frequency_alerts(impressions: list[Row]) -> Table:
    watermark = _watermark(row[5] for row in impressions)
    times: dict[Row, list[int]] = defaultdict(list)
    for row in impressions:
        times[row[2], row[1], row[5] // ALERT_WINDOW * ALERT_WINDOW].append(row[5])
    return Counter(
        (*key, len(of_key), min(of_key), max(of_key))
        for key, of_key in times.items()
        if len(of_key) > ALLOWED and key[2] + ALERT_WINDOW <= watermark
    )
