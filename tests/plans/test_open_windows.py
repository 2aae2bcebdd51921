"""A windowed aggregation whose watermark is on another column, in plans as Spark prints them; without a JVM."""

import pytest

from tests.plans.test_operators import HOUR, SESSION, plan, window
from tidemill.plans.open_windows import open_windows

SOURCE = 'StreamingRelation delta, [n#3L, t#4, u#5], name="flights"'
MARKED = (
    f"EventTimeWatermark db8578a5-cc5e-4caf-87bf-1a444105c6bb, t#4: timestamp, 10 minutes\n   +- {SOURCE}"
)
WITH, WITHOUT = "t#4-T600000ms", "u#5"


def windows(expression: str, time: str, below: str = MARKED) -> str:
    """Return the plan of a count per window of a time."""
    key = "window#6-T600000ms" if time == WITH and below == MARKED else "window#6"
    return plan(
        f"~Aggregate [{key}], [{key}, count(1) AS count#7L]",
        f"~Project [{expression.replace(WITH, time)} AS {key}, n#3L, t#4-T600000ms, u#5]",
        f"~Filter isnotnull({time})",
        f"~{below}",
    )


@pytest.mark.parametrize("expression", [window(HOUR, HOUR), window(HOUR, HOUR // 2), SESSION])
def test_windows_of_another_column_than_that_of_the_watermark_stay_open(expression):
    assert open_windows(windows(expression, WITHOUT)) == ["u"]
    assert open_windows(windows(expression, WITH)) == []
    assert open_windows(windows(expression, WITHOUT, below=SOURCE)) == [], "there is no watermark"
