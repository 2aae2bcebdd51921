"""Handmade input of two runs, with a row on each side of every time boundary in the tables of `ads`.

The newest impression and the newest click of both runs are just after 10:00, so the watermark is 08:00
exactly from the end of the first run on.
"""

import json
from pathlib import Path

FIRST_RUN = {
    "ad-campaigns": [
        {
            "ad_id": "a",
            "campaign_id": "old",
            "campaign": "Old",
            "op": "upsert",
            "seq": 1,
            "changed_at": "00:00:00",
        },
        {
            "ad_id": "a",
            "campaign_id": "new",
            "campaign": "New",
            "op": "upsert",
            "seq": 3,
            "changed_at": "05:00:00",
        },
        # It arrives after the change that follows it, and ends the campaign for two hours.
        {"ad_id": "a", "op": "delete", "seq": 2, "changed_at": "03:00:00"},
        {"ad_id": "never", "op": "delete", "seq": 1, "changed_at": "00:00:00"},
    ],
    "ad-impressions": [
        ("campaign ended", "02:59:59.999"),
        ("campaign just ended", "03:00:00"),
        ("campaign not begun", "04:59:59.999"),
        ("campaign just begun", "05:00:00"),
        ("clicked within the hour", "02:00:00"),
        ("clicked at the end of the hour", "02:00:00"),
        ("clicked after the hour", "02:00:00"),
        ("clicked at once", "02:00:00"),
        ("clicked before", "02:00:00"),
        ("clicked twice", "02:00:00"),
        ("given up", "06:59:59.999"),
        ("not given up", "07:00:00"),
        ("minute over", "07:59:00"),
        ("minute open", "08:00:00"),
        ("session over", "07:30:00", "user: session over"),
        ("session open", "07:30:00.001", "user: session open"),
        ("one session, begun", "01:00:00", "user: one session"),
        ("one session, continued", "01:30:00", "user: one session"),
        ("two sessions, first", "01:00:00", "user: two sessions"),
        ("two sessions, second", "01:30:00.001", "user: two sessions"),
        *((f"as often as allowed {n}", "03:30:00", "user: as often as allowed") for n in range(5)),
        *((f"too often {n}", f"03:3{n}:00", "user: too often") for n in range(5)),
        ("too often, at the end of the window", "03:39:59.999999", "user: too often"),
        *((f"in two windows {n}", "03:39:59.999999", "user: in two windows") for n in range(5)),
        ("in two windows, the next", "03:40:00", "user: in two windows"),
        *((f"too often, window over {n}", f"07:5{n}:00", "user: window over") for n in range(6)),
        *((f"too often, window open {n}", "08:00:00", "user: window open") for n in range(6)),
        ("forgotten", "06:00:00"),
        ("remembered", "06:00:00.001"),
        ("newest", "10:00:00.000999"),
    ],
    "ad-clicks": [
        ("within the hour", "clicked within the hour", "02:30:00"),
        ("end of the hour", "clicked at the end of the hour", "03:00:00"),
        ("after the hour", "clicked after the hour", "03:00:00.001"),
        ("at once", "clicked at once", "02:00:00"),
        ("before", "clicked before", "01:59:59.999"),
        ("first of two", "clicked twice", "02:00:01"),
        ("second of two", "clicked twice", "02:00:02"),
        ("on nothing", "never shown", "02:00:00"),
        ("newest", "newest", "10:00:00.000999"),
    ],
}
SECOND_RUN = {
    "ad-campaigns": [],
    "ad-impressions": [
        ("late", "08:00:00"),
        ("not late", "08:00:00.001"),
        ("forgotten", "09:00:00"),
        ("remembered", "09:00:00"),
    ],
    "ad-clicks": [("comes before it is too late", "not given up", "08:00:00.001")],
}


def write(landing: Path, run: dict[str, list], name: str) -> None:
    """Write the input of a run as one file per feed that has any."""
    lines = {
        "ad-campaigns": [json.dumps(c | {"changed_at": _at(c["changed_at"])}) for c in run["ad-campaigns"]],
        "ad-impressions": [_impression(*values) for values in run["ad-impressions"]],
        "ad-clicks": [_click(*values) for values in run["ad-clicks"]],
    }
    for feed, of_feed in lines.items():
        (landing / feed).mkdir(parents=True, exist_ok=True)
        if of_feed:
            (landing / feed / name).write_text("\n".join(of_feed))


def _at(time: str) -> str:
    return f"2026-01-01T{time}Z"


def _impression(impression_id: str, time: str, user_id: str = "user") -> str:
    return json.dumps(
        {
            "impression_id": impression_id,
            "ad_id": "a",
            "user_id": user_id,
            "page": "/",
            "cost_micros": 10,
            "event_time": _at(time),
        }
    )


def _click(click_id: str, impression_id: str, time: str) -> str:
    return json.dumps(
        {
            "click_id": click_id,
            "impression_id": impression_id,
            "ad_id": "a",
            "user_id": "user",
            "click_time": _at(time),
        }
    )
