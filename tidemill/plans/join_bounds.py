"""Stream-stream joins whose state Spark evicts too early, or never, found in the physical plan.

For an interval join Spark derives from the condition how long rows of each side can still match, and evicts the rows
that cannot. It takes the bound from any column of a side and applies it to that side's watermark column: where the
two differ, rows are evicted that still have matches (`bid.time BETWEEN auction.time AND auction.expires` with the
watermark on `auction.time`), and no counter shows it. Measured on Spark 4.2; plain Spark does the same.

The plan is read as text, because Spark Connect offers nothing else. Whatever cannot be parsed is not judged.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Side = Literal["left", "right"]

_OPERATOR = "StreamingSymmetricHashJoin "
# name#12L-T600000ms: the suffix is the delay of a column that carries a watermark.
_ATTRIBUTE = re.compile(r"(?P<name>[\w`.$]+)#(?P<id>\d+)L?(?P<delay>-T\d+ms)?")
_PREFIX = re.compile(r"^(?:[ :]*[+:]- )?")
_CONDITION = re.compile(r"full = (.*?) \], state info \[", re.DOTALL)
_TYPE = re.compile(r"\], (Inner|LeftOuter|RightOuter|FullOuter|LeftSemi)\b")
_PREDICATE = r"{side} (?P<kind>key|value) predicate: (?P<text>.*?)(?=, right (?:key|value) predicate|$)"
_FUNCTION = re.compile(r"[a-z_]\w*\(")
_COMPARISONS = (" <= ", " >= ", " < ", " > ")


@dataclass(frozen=True, slots=True)
class JoinFinding:
    """A side of a stream-stream join.

    Attributes:
        kind: `loses_rows`: rows are evicted that can still match. `unbounded`: no row is ever evicted.
        join: Spark's join type: `Inner`, `LeftOuter`, ...
        side: The side.
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
    left: str
    right: str

    def child(self, side: Side) -> str:
        return self.left if side == "left" else self.right


def join_findings(explained: str) -> list[JoinFinding]:
    """Return the findings about every stream-stream join of a query.

    Args:
        explained: The extended explain string of the streaming DataFrame.
    """
    plan = explained.split("== Physical Plan ==", 1)[-1].split("\n")
    findings: list[JoinFinding] = []
    for join in _joins(plan):
        findings += filter(None, (_judge(join, "left"), _judge(join, "right")))
    return findings


def _joins(plan: list[str]) -> Iterator[_Join]:
    for number, line in enumerate(plan):
        start = line.find(_OPERATOR)
        if start < 0:
            continue
        children = _children(plan, number)
        condition, kind = _CONDITION.search(line), _TYPE.search(line)
        cleanup = _bracketed(line, "state cleanup [")
        if len(children) == 2 and condition and kind and cleanup is not None:  # noqa: PLR2004 - a join has two
            yield _Join(kind[1], condition[1], cleanup, *children)


def _children(plan: list[str], parent: int) -> list[str]:
    """Return the subtrees below a line, separated by their indentation."""
    depth = _depth(plan[parent])
    children: list[list[str]] = []
    for line in plan[parent + 1 :]:
        if _depth(line) <= depth:
            break
        if _depth(line) == depth + 3:
            children.append([])
        if children:
            children[-1].append(line)
    return ["\n".join(child) for child in children]


def _depth(line: str) -> int:
    prefix = _PREFIX.match(line)
    return len(prefix[0]) if prefix else 0


def _bracketed(line: str, opening: str) -> str | None:
    """Return what stands between an opening and its closing bracket."""
    start = line.find(opening)
    if start < 0:
        return None
    depth, first = 1, start + len(opening)
    for position in range(first, len(line)):
        depth += {"[": 1, "]": -1}.get(line[position], 0)
        if depth == 0:
            return line[first:position].strip()
    return None


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
        definition = _definition(bound, join.child(side))
        if _mentions(evicting, definition) and not _is_later(evicting, definition):
            return None  # it is earlier than the evicting column, or the text does not show which
        bad = JoinFinding("loses_rows", join.kind, side, evicting["name"], bound["name"], other["name"])
    return bad


def _upper_bounds(join: _Join, side: Side) -> Iterator[tuple[re.Match[str], re.Match[str], str]]:
    """Yield the conditions that Spark derives a bound of a side from: other < own, with a watermark on the other.

    Spark's `StreamingJoinHelper` takes top-level comparisons with one column of each side, of which the other
    side's carries a watermark, and terms of additions, subtractions and casts.
    """
    own_ids = _ids(join.child(side))
    other_ids = _ids(join.right if side == "left" else join.left)
    for condition in _conjuncts(join.condition):
        comparison = _comparison(condition)
        if comparison is None or _FUNCTION.search(re.sub(r"\bcast\(", "(", condition)):
            continue
        smaller, larger = comparison
        attributes = [*_ATTRIBUTE.finditer(smaller), *_ATTRIBUTE.finditer(larger)]
        own = {match["id"]: match for match in attributes if match["id"] in own_ids}
        other = {match["id"]: match for match in attributes if match["id"] in other_ids}
        if len(own) != 1 or len(other) != 1:
            continue
        bound, opposite = next(iter(own.values())), next(iter(other.values()))
        if opposite["delay"] and bound["id"] in _ids(larger):
            yield bound, opposite, condition


def _ids(text: str) -> set[str]:
    return {match["id"] for match in _ATTRIBUTE.finditer(text)}


def _is_negated(attribute: re.Match[str], condition: str) -> bool:
    return re.search(rf"- ?\(?(?:cast\()?[\w`.]+#{attribute['id']}\b", condition) is not None


def _definition(attribute: re.Match[str], child: str) -> str:
    """Return the expression that a projection below the join defines a column by; empty where there is none."""
    alias = re.search(rf"(?:^|[\[,] ?)([^\[\]]*?) AS [\w`.]+#{attribute['id']}(?!\d)", child)
    return _split(alias[1], ", ")[-1] if alias else ""


def _mentions(attribute: re.Match[str], expression: str) -> bool:
    return re.search(rf"#{attribute['id']}(?!\d)", expression) is not None


def _is_later(attribute: re.Match[str], expression: str) -> bool:
    later = rf"#{attribute['id']}(?!\d)L?(-T\d+ms)? \+ INTERVAL '(?!-)"
    return re.search(later, expression) is not None


def _conjuncts(condition: str) -> list[str]:
    condition = _unwrapped(condition)
    parts = _split(condition, " AND ")
    return [condition] if len(parts) == 1 else [inner for part in parts for inner in _conjuncts(part)]


def _comparison(condition: str) -> tuple[str, str] | None:
    """Return the smaller and the larger side of a comparison."""
    for operator in _COMPARISONS:
        parts = _split(_unwrapped(condition), operator)
        if len(parts) == 2:  # noqa: PLR2004 - two sides
            return (parts[0], parts[1]) if "<" in operator else (parts[1], parts[0])
    return None


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator outside of all brackets."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[position], 0)
        if depth == 0 and text.startswith(separator, position):
            parts.append(text[start:position])
            position += len(separator)
            start = position
            continue
        position += 1
    return [*parts, text[start:]]


def _unwrapped(text: str) -> str:
    """Return an expression without the parentheses around the whole of it."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for position, character in enumerate(text):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if depth == 0 and position < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text
