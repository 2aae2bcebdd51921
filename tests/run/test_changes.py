"""A few edits of the campaign `make changes`: it keeps working, and its oracle notices a difference."""

from collections import Counter

import pytest

from bench.changes.campaign import order_of_edits, run_edits
from bench.changes.edits import EDITS
from bench.changes.oracle import Commit, Oracle
from bench.changes.world import DifferenceError, expect_equal, net

SEED, NUMBER = 4, 6


@pytest.mark.campaign
def test_a_few_edits_are_refused_or_end_with_the_rows_of_the_oracle(engine, tmp_path):
    outcomes = run_edits(tmp_path, engine, SEED, NUMBER)
    assert len(outcomes) == NUMBER


def test_every_edit_comes_before_one_comes_again():
    names = order_of_edits(0)
    for _ in range(3):
        assert {next(names) for _ in EDITS} == set(EDITS)


def test_rows_that_are_missing_or_doubled_are_a_difference():
    expected = Counter({(1,): 1, (2,): 1})
    expect_equal("t", expected, Counter(expected))
    for actual in ({(1,): 1}, {(1,): 2, (2,): 1}):
        with pytest.raises(DifferenceError, match=r"t: . rows missing .*, . rows too many"):
            expect_equal("t", expected, Counter(actual))


def test_changes_add_up_to_rows():
    changes = [
        ("a", 1, "insert"),
        ("a", 1, "update_preimage"),
        ("a", 2, "update_postimage"),
        ("b", 1, "insert"),
    ]
    assert net(Counter([*changes, ("b", 1, "delete")])) == Counter([("a", 2)])


def test_the_oracle_knows_which_readers_must_be_refused():
    oracle, reads = Oracle(["orders", "unique"]), {"orders": "rows orders"}
    orders = oracle.streams["orders"]
    commits = orders.commits
    orders.rows[1, 1, 1, 1] = 1
    commits.append(Commit(((1, 1, 1, 1),)))
    oracle.streams["orders"].rows[1, 1, 1, 1] = 1
    oracle.run("unique", reads, folders={}, further=[], deletes=True)
    assert oracle.streams["unique"].rows == Counter([(1,)])
    assert not oracle.must_refuse("unique", reads)
    commits.append(Commit((), version=3))
    assert oracle.must_refuse("unique", reads)
    oracle.streams["unique"].accepted["orders"] = {3}
    assert not oracle.must_refuse("unique", reads)
