"""What functions observe of their batches, in plain Python."""

from collections import Counter

RUNS = [
    [[("a", 1), ("b", 2), ("a", -3)], [("a", 4), ("c", 200)]],
    [[("b", 5)]],
    [[("c", 7), ("d", 8), ("d", 9)]],
]
"""The files of each run, and their views: a user and a number."""


def records(views):
    """The lines of a file."""
    return [{"user": user, "n": n} for user, n in views]


def batches():
    """What each stream observes in each batch."""
    state = Counter()
    expected = {"mon_observe_feed": [], "mon_observe_merge": [], "mon_observe": [], "mon_observe_state": []}
    for views in (file for run in RUNS for file in run):
        accepted = [n for _, n in views if n > 0]
        odd = [n for n in accepted if n % 2 == 1]
        large = [n for _, n in views if n > 1]
        for user, n in views:
            state[user] += n
        sums = [state[user] for user in {user for user, _ in views}]
        for stream, observed in {
            "mon_observe_feed": {"arrived": {"n": len(accepted), "largest": max(accepted)}},
            "mon_observe_merge": {
                "arrived": {"n": len(accepted), "mean": sum(accepted) / len(accepted)},
                "odd": {"n": len(odd)},
            },
            "mon_observe": {"large": {"n": len(large), "least": min(large), "sum(n)": sum(large)}},
            "mon_observe_state": {"groups": {"n": len(sums), "mean": sum(sums) / len(sums)}},
        }.items():
            expected[stream].append(observed)
    return expected


FIRST_RUN = {
    "mon_observe_feed": {"arrived": {"n": 4, "largest": 200}},
    "mon_observe_merge": {"arrived": {"n": 4, "mean": 102.0}, "odd": {"n": 1}},
    "mon_observe": {"large": {"n": 3, "least": 2, "sum(n)": 206}},
    "mon_observe_state": {"groups": {"n": 4, "mean": 101.0}},
}
"""What the two batches of the first run amount to."""
