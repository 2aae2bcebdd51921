"""Stream-stream joins whose state Spark evicts too early, or never, found in the physical plan.

For an interval join Spark derives from the condition how long rows of each side can still match, and evicts the rows
that cannot. It takes the bound from any column of a side and applies it to that side's watermark column: where the
two differ, rows are evicted that still have matches (`bid.time BETWEEN auction.time AND auction.expires` with the
watermark on `auction.time`), and no counter shows it. Measured on Spark 4.2; plain Spark does the same.

The plan is read as text, because Spark Connect offers nothing else. Whatever cannot be parsed is not judged.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tidemill.plans.expressions import Column, Scope, Scopes
from tidemill.plans.plan_tree import Node, closing, parse_plan, split, walk

Side = Literal["left", "right"]

_OPERATOR = "StreamingSymmetricHashJoin"
# name#12L-T600000ms: the suffix is the delay of a column that carries a watermark.
_ATTRIBUTE = re.compile(r"(?P<name>[\w`.$]+)#(?P<id>\d+)L?(?P<delay>-T\d+ms)?")
_CONDITION = re.compile(r"full = (.*?) \], state info \[", re.DOTALL)
_CLEANUP = re.compile(r"state cleanup \[(.*)\]", re.DOTALL)
_TYPE = re.compile(r"\], (Inner|LeftOuter|RightOuter|FullOuter|LeftSemi)\b")
_PREDICATE = r"{side} (?P<kind>key|value) predicate: (?P<text>.*?)(?=, right (?:key|value) predicate|$)"
_FUNCTION = re.compile(r"[a-z_]\w*\(")
_SIDES: tuple[Side, Side] = ("left", "right")
_COMPARISONS = (" <= ", " >= ", " < ", " > ")


@dataclass(frozen=True, slots=True)
class JoinFinding:
    """A side of a stream-stream join.

    Attributes:
        kind: `loses_rows`: rows are evicted that can still match. `unbounded`: no row is ever evicted.
        join: Spark's join type: `Inner`, `LeftOuter`, ...
        watermark: The column that rows are evicted by; empty where nothing is evicted.
        bound: The column that the condition bounds instead; empty where nothing is evicted.
        other: The column of the other side in that condition.
    """

    kind: Literal["loses_rows", "unbounded"]
    join: str
    side: Side
    watermark: str = ""
    bound: str = ""
    other: str = ""


@dataclass(frozen=True, slots=True)
class _Join:
    kind: str
    condition: str
    cleanup: str
    left: Scope
    right: Scope

    def own(self, side: Side) -> Mapping[str, Column]:
        return (self.left if side == "left" else self.right).columns

    def other(self, side: Side) -> Mapping[str, Column]:
        return self.own("right" if side == "left" else "left")


def join_findings(explained: str) -> list[JoinFinding]:
    """Return the findings about every stream-stream join of a query.

    Args:
        explained: The extended explain string of the streaming DataFrame.
    """
    root = parse_plan(explained.split("== Physical Plan ==", 1)[-1])
    joins = () if root is None else filter(None, map(_join, walk(root)))
    return [finding for join in joins for side in _SIDES if (finding := _judge(join, side))]


def _join(node: Node) -> _Join | None:
    """Return the stream-stream join of a node; None for any other node, and where the node cannot be read."""
    condition, kind, cleanup = (part.search(node.arguments) for part in (_CONDITION, _TYPE, _CLEANUP))
    if node.name != _OPERATOR or not (condition and kind and cleanup):
        return None
    left, right = node.children
    return _Join(kind[1], condition[1], cleanup[1].strip(), Scopes().of(left), Scopes().of(right))


def _judge(join: _Join, side: Side) -> JoinFinding | None:
    predicate = re.search(_PREDICATE.format(side=side), join.cleanup)
    if predicate is None:
        return JoinFinding("unbounded", join.kind, side)
    evicting = _ATTRIBUTE.search(predicate["text"])
    if predicate["kind"] == "key" or evicting is None:  # equal windows, or the watermark column is a join key
        return None
    bad: JoinFinding | None = None
    for bound, other, condition in _upper_bounds(join, side):
        if bound["id"] == evicting["id"]:
            return None  # Spark takes the smallest bound, and this one is right
        if _is_negated(bound, condition):
            return None
        if _is_earlier(evicting, bound, join.own(side)):
            return None
        bad = JoinFinding("loses_rows", join.kind, side, evicting["name"], bound["name"], other["name"])
    return bad


def _upper_bounds(join: _Join, side: Side) -> Iterator[tuple[re.Match[str], re.Match[str], str]]:
    """Yield the conditions that Spark derives a bound of a side from: other < own, with a watermark on the other.

    Spark's `StreamingJoinHelper` takes top-level comparisons with one column of each side, of which the other
    side's carries a watermark, and terms of additions, subtractions and casts.
    """
    for condition in _conjuncts(join.condition):
        comparison = _comparison(condition)
        if comparison is None or _FUNCTION.search(re.sub(r"\bcast\(", "(", condition)):
            continue
        smaller, larger = comparison
        attributes = [*_ATTRIBUTE.finditer(smaller), *_ATTRIBUTE.finditer(larger)]
        own = {match["id"]: match for match in attributes if match["id"] in join.own(side)}
        other = {match["id"]: match for match in attributes if match["id"] in join.other(side)}
        if len(own) != 1 or len(other) != 1:
            continue
        bound, opposite = next(iter(own.values())), next(iter(other.values()))
        if opposite["delay"] and bound["id"] in _ids(larger):
            yield bound, opposite, condition


def _ids(text: str) -> set[str]:
    return {match["id"] for match in _ATTRIBUTE.finditer(text)}


def _is_negated(attribute: re.Match[str], condition: str) -> bool:
    return re.search(rf"- ?\(?(?:cast\()?[\w`.]+#{attribute['id']}\b", condition) is not None


def _is_earlier(evicting: re.Match[str], bound: re.Match[str], columns: Mapping[str, Column]) -> bool:
    """Return whether a bound is computed from the evicting column, and the plan does not show that it is later."""
    if evicting["id"] not in columns:
        return False
    computed, meaning = columns[bound["id"]].meaning, re.escape(columns[evicting["id"]].meaning)
    later = rf"{meaning}(?: \+ INTERVAL '[^']*' [A-Z ]+)*? \+ INTERVAL '(?!-)"
    return bool(re.search(rf"{meaning}(?!\w)", computed)) and not re.search(later, computed)


def _conjuncts(condition: str) -> list[str]:
    condition = _unwrapped(condition)
    parts = split(condition, " AND ")
    return [condition] if len(parts) == 1 else [inner for part in parts for inner in _conjuncts(part)]


def _comparison(condition: str) -> tuple[str, str] | None:
    """Return the smaller and the larger side of a comparison."""
    for operator in _COMPARISONS:
        parts = split(_unwrapped(condition), operator)
        if len(parts) == 2:  # noqa: PLR2004 - two sides
            return (parts[0], parts[1]) if "<" in operator else (parts[1], parts[0])
    return None


def _unwrapped(text: str) -> str:
    """Return an expression without the parentheses around the whole of it."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and closing(text, 1) == len(text):
        text = text[1:-1].strip()
    return text
