"""The meaning of a plan's columns: each one as an expression of the columns of the sources.

`groupBy("carrier")` and `groupBy(F.col("origin").alias("carrier"))` have the same names and types, and so the same
state for Spark. Only the expression that a projection computes the key by shows that they mean something else.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidemill.plans.plan_tree import Node, lists

COLUMN_ID = re.compile(r"#(?P<id>\d+)L?(?:-T\d+ms)?")
# Spark numbers the variables of lambdas and draws a seed, differently in each process.
_LAMBDA = re.compile(r"\b([a-z]+)_\d+$")
_SEED = re.compile(r"\b(?P<function>randn?|uuid|shuffle)\((?P<before>[^()]*?)(?:Some\(-?\d+\)|-?\d+)\)")
_LAST_NAME = re.compile(r"[\w.`$]+$")
ITEM = re.compile(r"^(?:(?P<expression>.*) AS )?(?P<name>.*)#(?P<id>\d+)L?(?:-T\d+ms)?$", re.DOTALL)
_LEAF_COLUMNS = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(r"#\d+")
_FUNCTION = re.compile(r"^([\w.<>]+)\(")
_WITH_FUNCTION = ("MapIn", "FlatMapGroups", "FlatMapCoGroups", "TransformWithState")
_LONGEST = 1_000
# Stands before every column of a source, so that a join can mark the columns of its sides.
_BASE = "\x00"

_TIME = r"precisetimestampconversion\((?P<time>.+?), Timestamp(?:NTZ)?Type, LongType\)"
_WINDOW = re.compile(
    rf"^named_struct\(start, knownnullable\(precisetimestampconversion\(\(\({_TIME} - CASE WHEN .*?"
    r" - (?P<offset>-?\d+)\) % (?P<slide>\d+)\) < .* \+ (?P<size>\d+)\), LongType, Timestamp(?:NTZ)?Type\)\)\)$",
    re.DOTALL,
)
_SESSION = re.compile(
    rf"^named_struct\(start, precisetimestampconversion\({_TIME}, LongType, Timestamp(?:NTZ)?Type\), end, "
    r".*?precisetimestampconversion\(cast\((?P=time) \+ (?P<gap>.+) as timestamp(?:_ntz)?\), Timestamp.*$",
    re.DOTALL,
)
_WINDOW_TIME = re.compile(
    r"^precisetimestampconversion\(\(precisetimestampconversion\((?P<window>.+)\.end, (?P<type>\w+), LongType\) - 1\), "
    r"LongType, (?P=type)\)$"
)
_CONSTANT = re.compile(r"^cast\((?P<value>[^()]*) as interval\)$")
_UNITS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that a node has.

    Attributes:
        meanings: What each column is, by its id in the plan.
        names: The name of each column, by its id.
        output: The ids in their order; None where the plan does not show them.
    """

    meanings: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    output: tuple[str, ...] | None = None

    def resolve(self, expression: str) -> str:
        """Return an expression with the meanings of its columns in place of their names and ids."""
        parts, position = [], 0
        for match in COLUMN_ID.finditer(expression):
            before = expression[position : match.start()]
            position = match.end()
            name = self.names.get(match["id"])
            if name is not None and before.endswith(name):
                parts += [before.removesuffix(name), self.meanings[match["id"]]]
            else:
                parts.append(_LAMBDA.sub(r"\1", before))
        return _SEED.sub(r"\g<function>(\g<before>)", "".join([*parts, expression[position:]]))

    def merged(self, other: "Scope") -> "Scope":
        """Return the columns of two inputs side by side."""
        output = None if self.output is None or other.output is None else self.output + other.output
        return Scope(self.meanings | other.meanings, self.names | other.names, output)

    def prefixed(self, side: str) -> "Scope":
        """Return the columns as those of one side of a join."""
        marked = {key: value.replace(_BASE, f"{_BASE}{side}.") for key, value in self.meanings.items()}
        return replace(self, meanings=marked)

    def with_items(self, items: list[str]) -> "Scope":
        """Return the columns of a projection of this scope."""
        meanings, names, output = dict(self.meanings), dict(self.names), []
        for item in items:
            match = ITEM.match(item)
            if match is None:
                return self.opaque(", ".join(items), self.resolve(", ".join(items)))
            output.append(match["id"])
            names[match["id"]] = match["name"]
            if match["expression"] is not None:
                meanings[match["id"]] = shortened(self.resolve(readable(match["expression"])))
            else:
                meanings.setdefault(match["id"], match["name"])
        return Scope(meanings, names, tuple(output))

    def opaque(self, arguments: str, whole: str) -> "Scope":
        """Return the columns of a node that is not understood: each new one depends on the whole of the node."""
        whole = shortened(whole)
        meanings, names = dict(self.meanings), dict(self.names)
        for match in COLUMN_ID.finditer(arguments):
            if match["id"] not in meanings:
                last = _LAST_NAME.search(arguments[: match.start()])
                names[match["id"]] = last[0] if last else ""
                meanings[match["id"]] = f"{names[match['id']]} of {whole}"
        return Scope(meanings, names, None)


def shown_arguments(node: Node, scope: Scope) -> str:
    """Return what Spark prints behind a node, with the meanings of columns; a Python function by its name only.

    Such a function gets every column, and a column that is new in the source changes nothing.
    """
    function = _FUNCTION.match(node.arguments) if node.name.startswith(_WITH_FUNCTION) else None
    return function[1] if function else _NUMBER.sub("", scope.resolve(node.arguments))


def plain(meaning: str) -> str:
    """Return a meaning as people read it."""
    return meaning.replace(_BASE, "")


def shortened(meaning: str) -> str:
    """Return a meaning of limited length; a long one ends with its checksum."""
    if len(meaning) <= _LONGEST:
        return meaning
    checksum = hashlib.sha256(meaning.encode()).hexdigest()[:12]
    return f"{meaning[: _LONGEST // 2]}... (checksum {checksum})"


def readable(expression: str) -> str:
    """Return `window(...)` or `session_window(...)` for what Spark expands them to; any other expression as it is."""
    if match := _WINDOW.match(expression):
        size, slide, offset = (int(match[part]) for part in ("size", "slide", "offset"))
        every = f", every {_duration(slide)}" if slide != size else ""
        return f"window({match['time']}, {_duration(size)}{every}{f', offset {_duration(offset)}' if offset else ''})"
    if match := _SESSION.match(expression):
        constant = _CONSTANT.match(match["gap"])
        return f"session_window({match['time']}, {constant['value'] if constant else match['gap']})"
    if match := _WINDOW_TIME.match(expression):
        return f"window_time({match['window']})"
    return expression


def _duration(microseconds: int) -> str:
    for unit, length in _UNITS:
        if microseconds % length == 0:
            count = microseconds // length
            return f"{count} {unit}{'' if abs(count) == 1 else 's'}"
    return f"{microseconds} microseconds"


class Scopes:
    """The columns of every node of a plan, computed once per node."""

    def __init__(self) -> None:
        self._known: dict[Node, Scope] = {}

    def of(self, node: Node) -> Scope:
        """Return the columns that a node emits."""
        if node not in self._known:
            self._known[node] = self._emitted(node)
        return self._known[node]

    def below(self, node: Node) -> Scope:
        """Return the columns that the expressions of a node refer to."""
        if node.name == "Join":
            left, right = (self.of(child) for child in node.children)
            return _one_side(left, node, 0).merged(_one_side(right, node, 1))
        scope = Scope()
        for child in node.children:
            scope = scope.merged(self.of(child)) if scope.names else self.of(child)
        return scope

    def _emitted(self, node: Node) -> Scope:
        if not node.children:
            return _leaf(node)
        if node.name in _EMITTED:
            return _EMITTED[node.name](self, node)
        below = self.below(node)
        if node.name == "CollectMetrics":  # it names metrics, which are no columns
            return below
        whole = f"{node.name} {shown_arguments(node, below)}"
        emitted = below.opaque(node.arguments, whole)
        # A node that names no new column passes its columns on.
        return below if emitted.names.keys() == below.names.keys() else emitted

    def _project(self, node: Node) -> Scope:
        items = lists(node.arguments)
        below = self.below(node)
        return (
            below.with_items(items[-1])
            if items
            else below.opaque(node.arguments, shown_arguments(node, below))
        )

    def _join(self, node: Node) -> Scope:
        below = self.below(node)
        if node.arguments.startswith(("LeftSemi", "LeftAnti")):
            return replace(below, output=self.of(node.children[0]).output)
        return below

    def _union(self, node: Node) -> Scope:
        """Return the columns of the first input, each with its meaning in every input."""
        scopes = [self.of(child) for child in node.children]
        outputs = [scope.output for scope in scopes]
        first = outputs[0]
        if first is None or any(output is None or len(output) != len(first) for output in outputs):
            every = " | ".join(sorted(self._all_of(child) for child in node.children))
            meanings = {key: shortened(f"{name} of {every}") for key, name in scopes[0].names.items()}
            return replace(scopes[0], meanings=meanings)
        meanings = dict(scopes[0].meanings)
        for position, key in enumerate(first):
            every_meaning = [
                scope.meanings[output[position]]
                for scope, output in zip(scopes, outputs, strict=True)
                if output is not None
            ]
            meanings[key] = _either(every_meaning)
        return replace(scopes[0], meanings=meanings)

    def _all_of(self, node: Node) -> str:
        return self.below(node).resolve(f"{node.name} {node.arguments}")

    def _expand(self, node: Node) -> Scope:
        parsed = lists(node.arguments)
        below = self.below(node)
        if parsed is None or len(parsed) != 2:  # noqa: PLR2004 - the projections, and the columns
            return below.opaque(node.arguments, shown_arguments(node, below))
        projections = [lists(projection) for projection in parsed[0]]
        new = below.with_items(parsed[1])
        meanings = dict(new.meanings)
        for position, key in enumerate(new.output or ()):
            values = [
                below.resolve(readable(projection[0][position])) for projection in projections if projection
            ]
            if key not in below.meanings:
                meanings[key] = shortened(_either(values))
        return replace(new, meanings=meanings)


def _one_side(scope: Scope, join: Node, number: int) -> Scope:
    """Return the columns of one input of a join; the streaming columns of a lookup in a table keep their names."""
    one, other = join.children[number], join.children[1 - number]
    if one.streaming == other.streaming:
        return scope.prefixed(("left", "right")[number])
    return scope if one.streaming else scope.prefixed("static")


def _either(meanings: list[str]) -> str:
    distinct = list(dict.fromkeys(meanings))
    return distinct[0] if len(distinct) == 1 else f"({' or '.join(distinct)})"


def _leaf(node: Node) -> Scope:
    names: dict[str, str] = {}
    for columns in _LEAF_COLUMNS.finditer(node.arguments):
        items = [ITEM.match(item) for item in re.split(", ?", columns[1])]
        names = {item["id"]: item["name"] for item in items if item}
        if len(names) == len(items):
            break  # the options of a source come before, the columns of another version of its reader behind
    return Scope({key: f"{_BASE}{name}" for key, name in names.items()}, names, tuple(names))


_EMITTED: dict[str, Callable[[Scopes, Node], Scope]] = {
    "Project": Scopes._project,  # noqa: SLF001
    "Aggregate": Scopes._project,  # noqa: SLF001 - its last list is a projection
    "Join": Scopes._join,  # noqa: SLF001
    "Union": Scopes._union,  # noqa: SLF001
    "Expand": Scopes._expand,  # noqa: SLF001
}
