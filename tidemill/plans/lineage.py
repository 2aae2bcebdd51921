"""The columns of the sources that each output column is computed from, as far as the plan shows them.

A column is left out wherever a part of its expression cannot be read: an entry is complete, or it is missing.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.connectors.connector import READ_OBSERVATION
from tidemill.definitions.columns import CHANGE_COLUMNS, ORIGIN
from tidemill.plans.expressions import COLUMN_ID, ITEM, Scopes
from tidemill.plans.plan_tree import Node, lists, parse_plan

SourceColumn = tuple[str, str]
"""The name of a source, and a column of it."""
Lineage = Mapping[str, tuple[SourceColumn, ...]]
"""The columns of the sources that each output column is computed from."""
_Origins = frozenset[SourceColumn] | None
"""None where they are not known."""

# They arrive with the rows of a source, which has no such columns itself.
_ADDED = frozenset({*CHANGE_COLUMNS, ORIGIN})
_LONGEST_NAME = 300
_LAMBDA = re.compile(r"\blambda \w+$")
_READ = re.compile(rf"^{READ_OBSERVATION}(?P<source>\w+), \[")
_BOTH_SIDES = frozenset({"Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter"})
_ONE_SIDE = frozenset({"LeftSemi", "LeftAnti"})
_SAME_COLUMNS = frozenset(
    {
        "CollectMetrics",
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


def lineage_of(plan: str, output: list[str], static: Mapping[str, str] | None = None) -> Lineage:
    """Return the columns of the sources that each output column is computed from.

    A streaming source is known by the observation that counts its rows. A snapshot has none; its columns are known
    by their ids, which its own plan shows.

    Args:
        plan: The analyzed plan with the ids of expressions, as Spark prints it.
        output: The names of the output's columns.
        static: The plan of each snapshot alone, by the name of its source.

    Returns:
        The columns by output column; none for columns that use no column of a source, or that cannot be read.
    """
    try:
        snapshots = {
            key: (source, name)
            for source, text in (static or {}).items()
            for key, name in _columns_of(_Reader({}), text).names()
        }
        columns = _columns_of(_Reader(snapshots), plan)
    except (LookupError, ValueError, RecursionError):  # literals are not quoted, so one may look like a node
        return {}
    if [name for _, name in columns.names()] != output:
        return {}
    return {
        name: tuple(sorted(origins))
        for key, name in columns.names()
        if (origins := columns.known[key].origins)
    }


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    origins: _Origins


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that a node emits: those that are known, by id, and the ids in order if all are known."""

    known: Mapping[str, _Column] = field(default_factory=dict)
    order: tuple[str, ...] | None = None

    def names(self) -> list[tuple[str, str]]:
        """Return each id with its name, in order; none where the order is not known."""
        return [(key, self.known[key].name) for key in self.order or ()]

    def origins(self, expression: str) -> _Origins:
        """Return what an expression is computed from."""
        origins: set[SourceColumn] = set()
        for match in COLUMN_ID.finditer(expression):
            before = expression[max(0, match.start() - _LONGEST_NAME) : match.start()]
            if _LAMBDA.search(before):  # its variable; what it runs over is an argument next to it
                continue
            column = self.known.get(match["id"])
            # Another name belongs to a literal. A column has the case of letters in which the query names it.
            if column is None or column.origins is None or not _names(before, column.name):
                return None
            origins |= column.origins
        return frozenset(origins)

    def projected(self, items: list[str]) -> "_Columns":
        """Return the columns of a projection."""
        known = {}
        for item in items:
            match = ITEM.match(item)
            if match is None:
                return _Columns()
            expression = item if match["expression"] is None else match["expression"]
            known[match["id"]] = _Column(match["name"], self.origins(expression))
        return _Columns(known, tuple(known)) if len(known) == len(items) else _Columns(known)


class _Reader:
    def __init__(self, snapshots: Mapping[str, SourceColumn]) -> None:
        self._snapshots = snapshots
        self._leaves = Scopes()

    def of(self, node: Node) -> _Columns:
        """Return the columns that a node emits."""
        if not node.children:
            scope = self._leaves.of(node)
            known = {key: _Column(name, self._snapshot_origins(key)) for key, name in scope.names.items()}
            return _Columns(known, scope.output or None)
        inputs = [self.of(child) for child in node.children]
        if node.name in _SAME_COLUMNS and len(inputs) == 1:
            read = _READ.match(node.arguments) if node.name == "CollectMetrics" else None
            return inputs[0] if read is None else _read(inputs[0], read["source"])
        if node.name in _EMITTED:
            return _EMITTED[node.name](node, inputs)
        return _Columns()

    def _snapshot_origins(self, key: str) -> _Origins:
        return frozenset({self._snapshots[key]}) if key in self._snapshots else None


def _columns_of(reader: _Reader, plan: str) -> _Columns:
    root = parse_plan(plan)
    return _Columns() if root is None else reader.of(root)


def _read(columns: _Columns, source: str) -> _Columns:
    """Return the columns of a source, as the function receives them."""
    known = {
        key: _Column(name, frozenset() if name in _ADDED else frozenset({(source, name)}))
        for key, name in columns.names()
    }
    return _Columns(known, columns.order)


def _project(node: Node, inputs: list[_Columns]) -> _Columns:
    match lists(node.arguments), inputs:
        case [items], [below]:
            return below.projected(items)
    return _Columns()


def _aggregate(node: Node, inputs: list[_Columns]) -> _Columns:
    match lists(node.arguments), inputs:
        case [_, items], [below]:
            return below.projected(items)
    return _Columns()


def _generate(node: Node, inputs: list[_Columns]) -> _Columns:
    """Return the columns of the input, and new ones: `Generate explode(tags#1), false, [tag#2]`."""
    parsed, below = lists(node.arguments), inputs[0]
    if not parsed:
        return _Columns()
    origins = below.origins(node.arguments[: node.arguments.rindex("[")])
    new = {match["id"]: _Column(match["name"], origins) for item in parsed[-1] if (match := ITEM.match(item))}
    return _Columns({**below.known, **new})


def _join(node: Node, inputs: list[_Columns]) -> _Columns:
    left, right = inputs
    kind = node.arguments.partition(",")[0].strip()
    if kind in _ONE_SIDE:
        return left
    if kind not in _BOTH_SIDES:
        return _Columns()
    order = None if left.order is None or right.order is None else left.order + right.order
    return _Columns({**left.known, **right.known}, order)


def _union(_: Node, inputs: list[_Columns]) -> _Columns:
    """Return the columns of the first input, each computed from what it is in every input."""
    orders = [columns.order for columns in inputs if columns.order is not None]
    if len(orders) < len(inputs):
        return _Columns()
    known = {}
    for keys in zip(*orders, strict=True):
        columns = [each.known[key] for each, key in zip(inputs, keys, strict=True)]
        known[keys[0]] = _Column(columns[0].name, _all(column.origins for column in columns))
    return _Columns(known, orders[0])


def _expand(node: Node, inputs: list[_Columns]) -> _Columns:
    """Return the columns of the projections side by side: `Expand [[a#1, 0], [null, 1]], [a#2, id#3]`."""
    match lists(node.arguments), inputs:
        case [projections, items], [below]:
            rows = [(lists(projection) or [[]])[0] for projection in projections]
            names = below.projected(items)
            origins = [_all(map(below.origins, values)) for values in zip(*rows, strict=True)]
            known = {
                key: _Column(name, values) for (key, name), values in zip(names.names(), origins, strict=True)
            }
            return _Columns(known, names.order)
    return _Columns()


def _names(text: str, name: str) -> bool:
    """Return whether an expression ends with a name, and not with a longer one."""
    return text.lower().endswith(name.lower()) and not re.fullmatch(r"\w", text[: -len(name)][-1:])


def _all(every: Iterable[_Origins]) -> _Origins:
    known = list(every)
    origins = [columns for columns in known if columns is not None]
    return frozenset().union(*origins) if len(origins) == len(known) else None


_EMITTED: dict[str, Callable[[Node, list[_Columns]], _Columns]] = {
    "Project": _project,
    "Aggregate": _aggregate,
    "Generate": _generate,
    "Join": _join,
    "Union": _union,
    "Expand": _expand,
}
