"""What a function observes with `observe()`: the names in its plan, and how batches combine into one number."""

import re
from collections.abc import Mapping
from typing import Literal

from tidemill.connectors.connector import OWN_OBSERVATION
from tidemill.plans.plan_tree import closing, lists, parse_plan, walk

Fold = Literal["sum", "min", "max", "last"]
"""How the values of several batches combine into one: those of most aggregates do not, and the last one counts."""

Observations = Mapping[str, Mapping[str, Fold]]
"""The metrics of each observation, by its name and theirs."""

_NODE = re.compile(r"(?P<name>.+?), (?P<metrics>\[.*\]), -?\d+", re.DOTALL)
_METRIC = re.compile(r"(?P<aggregate>.*) AS (?P<name>.+)#\d+L?", re.DOTALL)
_FUNCTION = re.compile(r"(count|count_if|sum|min|max)\(")
_FOLDS: Mapping[str, Fold] = {"count": "sum", "count_if": "sum", "sum": "sum", "min": "min", "max": "max"}


def observations_in(plan: str) -> dict[str, dict[str, Fold]]:
    """Return the observations of a plan, Tidemill's own included.

    Args:
        plan: The analyzed plan with the ids of expressions, as Spark prints it.

    Returns:
        The metrics of each observation; none where they cannot be read, as in a literal with a bracket.
    """
    tree = parse_plan(plan)
    nodes = () if tree is None else walk(tree)
    matches = (_NODE.fullmatch(node.arguments) for node in nodes if node.name == "CollectMetrics")
    return {match["name"]: _metrics(match["metrics"]) for match in matches if match}


def _metrics(printed: str) -> dict[str, Fold]:
    items = (item for items in lists(printed) or () for item in items)
    return {match["name"]: _fold(match["aggregate"]) for item in items if (match := _METRIC.fullmatch(item))}


def _fold(aggregate: str) -> Fold:
    function = _FUNCTION.match(aggregate)
    if function is None or closing(aggregate, function.end()) != len(aggregate):
        return "last"
    return _FOLDS[function[1]]


def is_own(name: str) -> bool:
    """Return whether an observation is one of Tidemill's."""
    return name.startswith(OWN_OBSERVATION)
