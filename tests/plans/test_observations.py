"""What a function observes, read from the plan that Spark prints."""

import pytest

from tidemill.plans.observations import observations_in

PLAN = """Project [user#1, n#2L]
+- CollectMetrics views, [{metrics}], 12
   +- Filter (n#2L > 1)
      +- CollectMetrics tidemill_read_views, [count(1) AS rows#9L], 4
         +- StreamingRelation views"""


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ("count(1) AS n#3L, sum(n#2L) AS total#4L", {"n": "sum", "total": "sum"}),
        ("min(n#2L) AS least#3L, max((n#2L + abs(1))) AS most#4L", {"least": "min", "most": "max"}),
        ("count_if((n#2L > 1)) AS count_if((n > 1))#5L", {"count_if((n > 1))": "sum"}),
        ("avg(n#2L) AS mean#3, max_by(n#2L, user#1) AS last#4L", {"mean": "last", "last": "last"}),
        ("(sum(n#2L) / count(1)) AS mean#3, (count(1) + 1) AS more#4L", {"mean": "last", "more": "last"}),
        ("sum(n#2L) + sum(n#2L) AS twice#3L", {"twice": "last"}),
        ("count(1) FILTER (WHERE (n#2L > 1)) AS n#3L", {"n": "last"}),
        ("max(concat(user#1, ])) AS m#3", {}),
    ],
)
def test_how_batches_combine_is_known_by_the_aggregate(metrics, expected):
    observations = observations_in(PLAN.format(metrics=metrics))
    assert observations == {"views": expected, "tidemill_read_views": {"rows": "sum"}}


def test_a_plan_that_cannot_be_read_has_none():
    assert observations_in("") == observations_in("Project [n#2L]\n+- LocalRelation [n#2L]") == {}
