"""What the tables of `stateful` must have, in plain Python over all events but the last of each input."""

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import chain

START = datetime(2026, 1, 1, tzinfo=UTC)
# Long after all others: it moves the watermark over them, and what it would be part of stays in the state.
END = START + timedelta(hours=10)
SOON = timedelta(minutes=20)


def minutes(number: float) -> datetime:
    return START + timedelta(minutes=number)


def _view(number: int, at: float) -> dict:
    return {"view_id": f"v{number}", "user": f"u{number % 3}", "ad": f"a{number % 2}", "at": minutes(at)}


def _click(number: int, at: float) -> dict:
    return {"click_id": f"c{number}-{at}", "viewed": f"v{number}", "clicked_at": minutes(at)}


def _visit(at: float) -> dict:
    return {"visit_id": f"at {at}", "at": minutes(at)}


def _buy(user: int, amount: int, at: float) -> dict:
    return {"buyer": f"u{user}", "amount": amount, "bought_at": minutes(at)}


LAST = {
    "views": [{"view_id": "end", "user": "end", "ad": "end", "at": END}],
    "clicks": [{"click_id": "end", "viewed": "none", "clicked_at": END}],
    "buys": [{"buyer": "end", "amount": 0, "bought_at": END}],
    "visits": [{"visit_id": "end", "at": END}],
}
# What arrives before each run, in files: one input, the other one, two of them, all, and the end.
ARRIVALS = (
    {
        "views": [[_view(n, n * 1.5) for n in (3, 1, 0, 2)], [_view(n, n * 1.5) for n in (4, 9, 6)]],
        "visits": [[_visit(at) for at in (31, 0, 3)]],
    },
    {"clicks": [[_click(1, 4), _click(4, 12), _click(1, 6)], [_click(3, 40), _click(77, 20)]]},
    {
        "views": [[_view(n, n * 2) for n in (15, 11, 13)], [_view(3, 4.5), _view(n := 20, n * 2)]],
        "buys": [[_buy(1, 5, 8), _buy(1, 7, 14)], [_buy(2, 9, 90), _buy(1, 11, 13)]],
        "visits": [[_visit(at) for at in (22, 7, 3)]],
    },
    {
        "views": [[_view(n, n * 2) for n in (21, 20)], [_view(n, n * 2) for n in (24, 22)]],
        "clicks": [[_click(20, 44), _click(24, 50)], [_click(15, 31), _click(13, 70)]],
        "buys": [[_buy(2, 13, 46)], [_buy(0, 3, 51)]],
        "visits": [[_visit(at) for at in (40, 34, 12)]],
    },
    {name: [rows] for name, rows in LAST.items()},
)


def _all(name: str) -> list[dict]:
    return [row for arrival in ARRIVALS[:-1] for file in arrival.get(name, []) for row in file]


VIEWS, CLICKS, BUYS = map(_all, ("views", "clicks", "buys"))


def _floor(time: datetime, length: int) -> datetime:
    return START + (time - START) // timedelta(minutes=length) * timedelta(minutes=length)


def _windowed(times, length: int, slide: int | None = None) -> Counter:
    """The number of times in each window."""
    slide, counts = slide or length, Counter()
    for time, *key in times:
        start = _floor(time, slide)
        while start + timedelta(minutes=length) > time:
            counts[start, *key] += 1
            start -= timedelta(minutes=slide)
    return counts


def _visits(gap_of) -> list[tuple]:
    """The visits of each user: start, end, user and number of views."""
    by_user = defaultdict(list)
    for view in VIEWS:
        by_user[view["user"]].append((view["at"], view["at"] + timedelta(minutes=gap_of(view))))
    visits = []
    for user, intervals in by_user.items():
        merged: list[list] = []
        for start, end in sorted(intervals):
            if merged and start <= merged[-1][1]:
                merged[-1] = [merged[-1][0], max(end, merged[-1][1]), merged[-1][2] + 1]
            else:
                merged.append([start, end, 1])
        visits += [(start, end, user, n) for start, end, n in merged]
    return visits


def _pairs() -> list[tuple[dict, dict]]:
    return [
        (view, click)
        for view in VIEWS
        for click in CLICKS
        if click["viewed"] == view["view_id"] and view["at"] <= click["clicked_at"] <= view["at"] + SOON
    ]


def _rows(counts: Counter) -> Counter:
    return Counter((*key, n) for key, n in counts.items())


def op_agg():
    users = {view["user"] for view in VIEWS}
    of = {user: [view["at"] for view in VIEWS if view["user"] == user] for user in users}
    return Counter((user, len(times), max(times)) for user, times in of.items())


op_agg_complete = op_agg


def win_tumbling():
    return _rows(_windowed([(view["at"], view["ad"]) for view in VIEWS], 10))


def win_sliding():
    return _rows(_windowed([(view["at"], view["ad"]) for view in VIEWS], 10, 5))


def win_session():
    return Counter(_visits(lambda _: 4))


def win_session_gap_per_row():
    return Counter(_visits(lambda view: 8 if view["ad"] == "a1" else 3))


def win_time():
    most: dict = {}
    for (start,), n in _windowed([(view["at"],) for view in VIEWS], 5).items():
        half = _floor(start, 30)
        most[half] = max(most.get(half, 0), n)
    return Counter(most.items())


def wm_clean():
    return _rows(_windowed([(view["at"],) for view in VIEWS], 10))


def late_visits() -> list[list[datetime]]:
    """The visits of each run whose window the runs before have closed: it ended ten minutes before their newest one."""
    late, newest = [], START
    for arrival in ARRIVALS:
        times = [row["at"] for file in arrival.get("visits", []) for row in file]
        closed = newest - timedelta(minutes=10)
        late.append([time for time in times if _floor(time, 5) + timedelta(minutes=5) <= closed])
        newest = max([newest, *times])
    return late


def wm_late():
    on_time = Counter(row["at"] for row in _all("visits")) - Counter(chain(*late_visits()))
    return _rows(_windowed([(time,) for time in on_time.elements()], 5))


def wm_multi():
    times = [(view["at"],) for view in VIEWS] + [(click["clicked_at"],) for click in CLICKS]
    return _rows(_windowed(times, 10))


wm_multi_max = wm_multi


def join_inner():
    return Counter((view["view_id"], click["click_id"]) for view, click in _pairs())


def join_inner_equal_windows():
    return Counter(
        (view["view_id"], click["click_id"])
        for view in VIEWS
        for click in CLICKS
        if click["viewed"] == view["view_id"] and _floor(view["at"], 30) == _floor(click["clicked_at"], 30)
    )


def _alone(rows: list[dict], side: int) -> list[dict]:
    joined = [pair[side] for pair in _pairs()]
    return [row for row in rows if row not in joined]


def join_outer():
    return join_inner() + Counter((view["view_id"], None) for view in _alone(VIEWS, 0))


def join_outer_right():
    return join_inner() + Counter((None, click["click_id"]) for click in _alone(CLICKS, 1))


def join_outer_full():
    return join_outer() + join_outer_right() - join_inner()


def join_semi():
    return Counter((view["view_id"],) for view in VIEWS if view not in _alone(VIEWS, 0))


def join_chain():
    sums: Counter = Counter()
    for view, click in _pairs():
        for buy in BUYS:
            if (
                buy["buyer"] == view["user"]
                and click["clicked_at"] <= buy["bought_at"] <= click["clicked_at"] + SOON
            ):
                sums[_floor(buy["bought_at"], 10)] += buy["amount"]
    return Counter(sums.items())


def dedup_key():
    return Counter({(view["view_id"],) for view in VIEWS})


dedup_wm = dedup_key


def dedup_key_time():
    return Counter({(view["view_id"], view["at"]) for view in VIEWS})


def stateful_pandas():
    return Counter((start, user, n) for start, _, user, n in win_session())


def stateful_tws():
    return Counter((int(start.timestamp() * 1000), user, n) for start, user, n in stateful_pandas())


def stateful_tws_states():
    initial = {"u0": 100}
    return Counter(
        (user, n + initial.get(user, 0), len({view["ad"] for view in VIEWS if view["user"] == user}))
        for user, n, _ in op_agg()
    )


store_hdfs = store_rocksdb = store_partitions = op_agg
