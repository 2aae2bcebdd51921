"""Windowed aggregations whose state is never cleaned, because their watermark is on another column.

Spark removes a window once the watermark of the column that it is made of has passed. In output mode `append` it
refuses a window of any other column; in `update` it takes one, and keeps every window forever.
"""

import re

from tidemill.plans.expressions import Scopes, plain, readable
from tidemill.plans.plan_tree import lists, parse_plan, split, walk

_WITH_WATERMARK = re.compile(r"#\d+L?-T\d+ms")
_OPENINGS = ("window(", "session_window(")


def open_windows(plan: str) -> list[str]:
    """Return the time columns of the windows that no watermark closes, in a query that has a watermark.

    Args:
        plan: The analyzed plan of the streaming DataFrame, as Spark prints it.
    """
    root = parse_plan(plan)
    columns = []
    for node in [] if root is None else walk(root):
        marked = any(below.name == "EventTimeWatermark" for below in walk(node))
        keys = (lists(node.arguments) or [[]])[0] if node.name == "Aggregate" and node.streaming else []
        if not marked or any(map(_WITH_WATERMARK.search, keys)):
            continue
        scope = Scopes().below(node)
        for key in (scope.resolve(readable(key)) for key in keys):
            columns += [split(key[len(o) : -1])[0] for o in _OPENINGS if key.startswith(o)]
    return [plain(column) for column in columns]
