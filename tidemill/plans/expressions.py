"""The meaning and the origins of a plan's columns: each one as an expression of the columns of the sources.

`groupBy("carrier")` and `groupBy(F.col("origin").alias("carrier"))` have the same names and types, and so the same
state for Spark. Only the expression that a projection computes the key by shows that they mean something else.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemill.connectors.connector import READ_OBSERVATION
from tidemill.definitions.columns import CHANGE_COLUMNS, ORIGIN
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


SourceColumn = tuple[str, str]
"""The name of a source, and a column of it."""
Origins = frozenset[SourceColumn] | None
"""The columns of the sources that a column is computed from; None where a part of its expression cannot be read."""

_READ = re.compile(rf"^{READ_OBSERVATION}(?P<source>\w+), \[")
# They arrive with the rows of a source, which has no such columns itself.
_ADDED = frozenset({*CHANGE_COLUMNS, ORIGIN})
_LONGEST_NAME = 300
_LAMBDA_VARIABLE = re.compile(r"\blambda \w+$")
_SAME_COLUMNS = frozenset(
    {
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "EventTimeWatermark",
        "Filter",
        "GlobalLimit",
        "LocalLimit",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "UpdateEventTimeWatermarkColumn",
        "View",
    }
)
_BOTH_SIDES = frozenset({"Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter"})
_ONE_SIDE = frozenset({"LeftSemi", "LeftAnti"})
_LISTS = {"Project": 1, "Aggregate": 2}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a node: its name, its meaning, and its origins."""

    name: str
    meaning: str
    origins: Origins = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that a node has.

    Attributes:
        columns: What each column is, by its id in the plan.
        output: The ids in their order; None where the plan does not show them.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    output: tuple[str, ...] | None = None

    def resolve(self, expression: str) -> str:
        """Return an expression with the meanings of its columns in place of their names and ids."""
        parts, position = [], 0
        for match in COLUMN_ID.finditer(expression):
            before = expression[position : match.start()]
            position = match.end()
            column = self.columns.get(match["id"])
            if column is not None and before.endswith(column.name):
                parts += [before.removesuffix(column.name), column.meaning]
            else:
                parts.append(_LAMBDA.sub(r"\1", before))
        return _SEED.sub(r"\g<function>(\g<before>)", "".join([*parts, expression[position:]]))

    def origins(self, expression: str) -> Origins:
        """Return the columns of the sources that an expression is computed from."""
        origins: list[Origins] = []
        for match in COLUMN_ID.finditer(expression):
            before = expression[max(0, match.start() - _LONGEST_NAME) : match.start()]
            if _LAMBDA_VARIABLE.search(before):  # what it runs over is an argument next to it
                continue
            column = self.columns.get(match["id"])
            # Another name belongs to a literal. A column has the case of letters in which the query names it.
            origins.append(column.origins if column is not None and _names(before, column.name) else None)
        return _all(origins)

    def merged(self, other: "Scope") -> "Scope":
        """Return the columns of two inputs side by side."""
        output = None if self.output is None or other.output is None else self.output + other.output
        return Scope({**self.columns, **other.columns}, output)

    def mapped(self, change: Callable[[Column], Column]) -> "Scope":
        """Return the scope with each column changed."""
        return replace(self, columns={key: change(column) for key, column in self.columns.items()})

    def prefixed(self, side: str) -> "Scope":
        """Return the columns as those of one side of a join."""
        return self.mapped(
            lambda column: replace(column, meaning=column.meaning.replace(_BASE, f"{_BASE}{side}."))
        )

    def read_from(self, source: str) -> "Scope":
        """Return the columns of a source, as the function receives them."""
        columns = {
            key: replace(
                column, origins=frozenset() if column.name in _ADDED else frozenset({(source, column.name)})
            )
            for key, column in self.emitted()
        }
        return replace(self, columns={**self.columns, **columns})

    def without_origins(self) -> "Scope":
        """Return the columns of a node that is not understood, which may change them."""
        return self.mapped(lambda column: replace(column, origins=None))

    def emitted(self) -> list[tuple[str, Column]]:
        """Return each column with its id, in order; none where the order is not known."""
        return [(key, self.columns[key]) for key in self.output or ()]

    def with_items(self, items: list[str]) -> "Scope":
        """Return the columns of a projection of this scope."""
        columns, output = dict(self.columns), []
        for item in items:
            match = ITEM.match(item)
            if match is None:
                return self.opaque(", ".join(items), self.resolve(", ".join(items)))
            key, name, expression = match["id"], match["name"], match["expression"]
            output.append(key)
            if expression is not None:
                meaning = shortened(self.resolve(readable(expression)))
            else:
                meaning = columns[key].meaning if key in columns else name
            columns[key] = Column(name, meaning, self.origins(item if expression is None else expression))
        return Scope(columns, tuple(output))

    def opaque(self, arguments: str, whole: str, origins: Origins = None) -> "Scope":
        """Return the columns of a node that is not understood: each new one depends on the whole of the node."""
        whole = shortened(whole)
        columns = dict(self.columns)
        for match in COLUMN_ID.finditer(arguments):
            if match["id"] not in columns:
                last = _LAST_NAME.search(arguments[: match.start()])
                name = last[0] if last else ""
                columns[match["id"]] = Column(name, f"{name} of {whole}", origins)
        return Scope(columns, None)


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
    """The columns of every node of a plan, computed once per node.

    Args:
        snapshots: The column of a source behind an id of a leaf. A streaming source needs none: its columns are
            known by the observation that counts its rows.
    """

    def __init__(self, snapshots: Mapping[str, SourceColumn] | None = None) -> None:
        self._snapshots = snapshots or {}
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
            scope = scope.merged(self.of(child)) if scope.columns else self.of(child)
        return scope

    def _emitted(self, node: Node) -> Scope:
        if not node.children:
            return self._leaf(node)
        if node.name in _EMITTED:
            return _EMITTED[node.name](self, node)
        below = self.below(node)
        if node.name in _SAME_COLUMNS:
            return below
        below = below.without_origins()
        emitted = below.opaque(node.arguments, f"{node.name} {shown_arguments(node, below)}")
        # A node that names no new column passes its columns on.
        return below if emitted.columns.keys() == below.columns.keys() else emitted

    def _leaf(self, node: Node) -> Scope:
        names: dict[str, str] = {}
        for columns in _LEAF_COLUMNS.finditer(node.arguments):
            items = [ITEM.match(item) for item in re.split(", ?", columns[1])]
            names = {item["id"]: item["name"] for item in items if item}
            if len(names) == len(items):
                break  # the options of a source come before, the columns of another version of its reader behind
        known = {
            key: Column(
                name, f"{_BASE}{name}", frozenset({self._snapshots[key]}) if key in self._snapshots else None
            )
            for key, name in names.items()
        }
        return Scope(known, tuple(known))

    def _metrics(self, node: Node) -> Scope:
        """Return the columns of the input; what the node itself names are metrics."""
        read = _READ.match(node.arguments)
        return self.below(node).read_from(read["source"]) if read else self.below(node)

    def _project(self, node: Node) -> Scope:
        parsed = lists(node.arguments)
        below = self.below(node)
        if not parsed:
            return below.opaque(node.arguments, shown_arguments(node, below))
        # A literal with brackets may look like one more list.
        return (below if len(parsed) == _LISTS[node.name] else below.without_origins()).with_items(parsed[-1])

    def _generate(self, node: Node) -> Scope:
        """Return the columns of the input, and new ones: `Generate explode(tags#1), false, [tag#2]`."""
        below = self.below(node)
        origins = below.origins(node.arguments.rpartition("[")[0]) if lists(node.arguments) else None
        return below.opaque(node.arguments, f"{node.name} {shown_arguments(node, below)}", origins)

    def _join(self, node: Node) -> Scope:
        below = self.below(node)
        kind = node.arguments.partition(",")[0].strip()
        if kind in _ONE_SIDE:
            return replace(below, output=self.of(node.children[0]).output)
        return below if kind in _BOTH_SIDES else below.without_origins()

    def _union(self, node: Node) -> Scope:
        """Return the columns of the first input, each computed from what it is in every input."""
        scopes = [self.of(child) for child in node.children]
        first = scopes[0]
        inputs = [scope.emitted() for scope in scopes]
        if first.output is None or any(len(columns) != len(first.output) for columns in inputs):
            every = " | ".join(sorted(self._all_of(child) for child in node.children))
            return first.mapped(lambda column: Column(column.name, shortened(f"{column.name} of {every}")))
        known = dict(first.columns)
        for position, key in enumerate(first.output):
            columns = [columns[position][1] for columns in inputs]
            meaning = _either([column.meaning for column in columns])
            known[key] = Column(known[key].name, meaning, _all(column.origins for column in columns))
        return replace(first, columns=known)

    def _all_of(self, node: Node) -> str:
        return self.below(node).resolve(f"{node.name} {node.arguments}")

    def _expand(self, node: Node) -> Scope:
        """Return the columns of the projections side by side: `Expand [[a#1, 0], [null, 1]], [a#2, id#3]`."""
        parsed = lists(node.arguments)
        below = self.below(node)
        if parsed is None or len(parsed) != 2:  # noqa: PLR2004 - the projections, and the columns
            return below.opaque(node.arguments, shown_arguments(node, below))
        rows = [row[0] for projection in parsed[0] if (row := lists(projection))]
        new = below.with_items(parsed[1])
        known = dict(new.columns)
        for (key, column), values in zip(new.emitted(), zip(*rows, strict=True), strict=True):
            if key in below.columns:
                meaning = column.meaning
            else:
                meaning = shortened(_either([below.resolve(readable(value)) for value in values]))
            known[key] = Column(column.name, meaning, _all(map(below.origins, values)))
        return replace(new, columns=known)


def _one_side(scope: Scope, join: Node, number: int) -> Scope:
    """Return the columns of one input of a join; the streaming columns of a lookup in a table keep their names."""
    one, other = join.children[number], join.children[1 - number]
    if one.streaming == other.streaming:
        return scope.prefixed(("left", "right")[number])
    return scope if one.streaming else scope.prefixed("static")


def _either(meanings: list[str]) -> str:
    distinct = list(dict.fromkeys(meanings))
    return distinct[0] if len(distinct) == 1 else f"({' or '.join(distinct)})"


def _names(text: str, name: str) -> bool:
    """Return whether an expression ends with a name, and not with a longer one."""
    return text.lower().endswith(name.lower()) and not re.fullmatch(r"\w", text[: -len(name)][-1:])


def _all(every: Iterable[Origins]) -> Origins:
    known = list(every)
    origins = [columns for columns in known if columns is not None]
    return frozenset().union(*origins) if len(origins) == len(known) else None


_EMITTED: dict[str, Callable[[Scopes, Node], Scope]] = {
    "CollectMetrics": Scopes._metrics,  # noqa: SLF001
    "Project": Scopes._project,  # noqa: SLF001
    "Aggregate": Scopes._project,  # noqa: SLF001 - its last list is a projection
    "Generate": Scopes._generate,  # noqa: SLF001
    "Join": Scopes._join,  # noqa: SLF001
    "Union": Scopes._union,  # noqa: SLF001
    "Expand": Scopes._expand,  # noqa: SLF001
}
