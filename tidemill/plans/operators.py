"""The stateful operators of a query, as data that a later run compares with its own."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidemill.plans.expressions import Scope, Scopes, plain, readable, shown_arguments
from tidemill.plans.plan_tree import Node, closing, lists, parse_plan, walk
from tidemill.records.manifest import StatefulOperator

STATE_TYPES = "state types"

_SOURCE = re.compile(r'\bname="(?P<name>[^"]*)"')
_DELAY = re.compile(r"^[-0-9a-f]*,? ?(?P<column>.*#\d+L?(?:-T\d+ms)?): [^,]*, (?P<delay>.*)$", re.DOTALL)
_ALIAS = re.compile(r"^(?P<expression>.*) AS .*#\d+L?(?:-T\d+ms)?$", re.DOTALL)
_ANY_ID = re.compile(r"#(\d+)")
_SESSION, _WINDOW = "session_window(", "window("

# Nodes that neither add nor remove rows. A union adds a source, which is compared as one.
_SAME_ROWS = {
    "Project",
    "SubqueryAlias",
    "View",
    "EventTimeWatermark",
    "UpdateEventTimeWatermarkColumn",
    "CollectMetrics",
    "Expand",  # windows that slide and grouping sets are in the group keys
    "ResolvedHint",
    "UnresolvedHint",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "Union",
    "LocalLimit",
    "Sort",
}
_KINDS = {
    "Aggregate": "aggregate",
    "Distinct": "deduplicate",
    "Deduplicate": "deduplicate",
    "DeduplicateWithinWatermark": "deduplicate within watermark",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPandas": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "GlobalLimit": "limit",
}


def operators_of(plan: str) -> tuple[StatefulOperator, ...] | None:
    """Return the stateful operators of a query, the one nearest to the sink first.

    Args:
        plan: The analyzed plan of the streaming DataFrame, as Spark prints it.

    Returns:
        The operators; None where the plan cannot be read. Such a plan is not judged.
    """
    root = parse_plan(plan)
    if root is None:
        return None
    try:
        reader = _Reader(root)
        return tuple(reader.operator(node, used) for node, used in reader.stateful(root, None))
    except (
        LookupError,
        ValueError,
    ):  # literals are not quoted, and one of them looks like a part of the plan
        return None


def have_timers(operators: Sequence[StatefulOperator] | None) -> bool:
    """Return whether operators have timers of the processing time, which fire without data (a TTL has some, too)."""
    return any("ProcessingTime" in operator.properties.get("mode", "") for operator in operators or ())


def with_types(
    operators: tuple[StatefulOperator, ...], types: Sequence[tuple[str, str]]
) -> tuple[StatefulOperator, ...]:
    """Return operators with the types of their state.

    Args:
        operators: The operators of the analyzed plan.
        types: The name of each stateful node of the optimized plan, in the same order, and its types. Where the
            optimizer has changed their number or order, no type is known.
    """
    kinds = ["aggregate" if operator.kind == "session window" else operator.kind for operator in operators]
    if kinds != [_KINDS.get(name, "stream-stream join") for name, _ in types]:
        return operators
    return tuple(
        replace(operator, properties={**operator.properties, **({STATE_TYPES: state} if state else {})})
        for operator, (_, state) in zip(operators, types, strict=True)
    )


class _Reader:
    """Reads the operators of one plan."""

    def __init__(self, root: Node) -> None:
        self._scopes = Scopes()
        self._watermarks = ", ".join(sorted(set(self._watermarks_below(root))))

    def stateful(self, node: Node, used: set[str] | None) -> Iterator[tuple[Node, set[str] | None]]:
        """Yield the stateful nodes from the sink down, each with the ids that the nodes above it use."""
        if not node.streaming:
            return
        if _kind(node) is not None:
            yield node, used
        below = _used_below(node, used)
        for child in node.children:
            yield from self.stateful(child, below)

    def operator(self, node: Node, used: set[str] | None) -> StatefulOperator:
        """Return what a stateful node keeps."""
        kind = _kind(node) or ""
        scope = self._scopes.below(node)
        if node.name == "Aggregate":
            properties = _aggregate(node, scope)
            if "session window" in properties:
                kind = "session window"
        elif node.name == "Join":
            properties = self._join(node, scope, used)
        elif node.name == "GlobalLimit":
            properties = {"rows": node.arguments}
        elif kind == "deduplicate" or kind.startswith("deduplicate "):
            keys = (lists(node.arguments) or [[]])[0] if node.arguments else None
            properties = {"keys": _list(scope, keys, node) if keys is not None else "all columns"}
        else:
            properties = self._arbitrary(node, scope)
        filters, steps = self._rows_below(
            node, properties.get("window", properties.get("session window", ""))
        )
        properties |= {
            "filters": " AND ".join(sorted(filters)),
            "steps": "; ".join(steps),
            "watermark": self._watermarks,
            "sources": ", ".join(sorted(_sources(node))),
        }
        known = {name: plain(value) for name, value in properties.items() if value}
        return StatefulOperator(kind=kind, properties=known)

    def _join(self, node: Node, scope: Scope, used: set[str] | None) -> dict[str, str]:
        kind, _, condition = node.arguments.partition(", ")
        properties = {"type": kind, "condition": scope.resolve(condition)}
        for side, child in zip(("left", "right"), node.children, strict=True):
            output = self._scopes.of(child).output
            if output is None:
                continue
            needed = _ids(condition) | (set(output) if used is None else used)
            properties[f"{side} columns"] = ", ".join(
                scope.columns[column].meaning.replace(f"\x00{side}.", "")
                for column in output
                if column in needed
            )
        return properties

    def _arbitrary(self, node: Node, scope: Scope) -> dict[str, str]:
        """Return the properties of an operator whose state a function of the user keeps."""
        function = node.arguments.partition("(")[0]
        if node.name == "TransformWithStateInPySpark":
            count = re.search(r"#\d+, (\d+), \[", node.arguments)
            output = self._scopes.of(node.children[0]).output or ()
            keys = [scope.columns[key].meaning for key in output[: int(count[1]) if count else 0]]
            # An initial state has columns of its own behind the mode.
            mode = re.search(r"\], (\w+, \w+), (?:python|pandas)", node.arguments)
            return {"group keys": ", ".join(keys), "mode": mode[1] if mode else ""}
        parsed = lists(node.arguments) or []
        columns = parsed[0] if parsed else []
        tail = node.arguments[node.arguments.rfind("]") + 1 :].strip(", ")
        properties = {"function": function, "group keys": _list(scope, columns, node), "mode": tail}
        if len(parsed) > 2:  # noqa: PLR2004 - the keys, the output, the state
            properties["state"] = ", ".join(parsed[2])
        return properties

    def _rows_below(self, node: Node, window: str) -> tuple[list[str], list[str]]:
        """Return what decides which rows reach an operator: the filters, and other nodes that add or remove rows."""
        filters: list[str] = []
        steps: list[str] = []
        sides = ("left", "right") if _kind(node) == "stream-stream join" else ("",) * len(node.children)
        below_sides = zip(sides, map(self._between, node.children), strict=True)
        for side, below in ((side, below) for side, nodes in below_sides for below in nodes):
            scope = self._scopes.below(below)
            if side:
                scope = scope.prefixed(side)
            if below.name == "Filter":
                condition = scope.resolve(below.arguments)
                of_window = condition.startswith("isnotnull(") and window.startswith(f"{condition[10:-1]}, ")
                if not of_window:  # Spark adds that one itself
                    filters.append(condition)
            elif below.children and below.name not in _SAME_ROWS:
                arguments = shown_arguments(below, scope)
                if below.name == "Sample":
                    arguments = ", ".join(arguments.split(", ")[:3])  # its seed differs in each process
                steps.append(f"{below.name} {arguments}")
            for subquery in below.inner:
                steps += [f"subquery {part.name} {shown_arguments(part, Scope())}" for part in walk(subquery)]
        return filters, steps

    def _between(self, node: Node) -> Iterator[Node]:
        """Yield a node and those below it, up to the sources or to the next operators."""
        if _kind(node) is None:
            yield node
            for child in node.children:
                yield from self._between(child)

    def _watermarks_below(self, node: Node) -> list[str]:
        below = [self._watermarks_below(child) for child in node.children]
        if _kind(node) == "stream-stream join":
            below = [
                [f"{side}.{mark}" for mark in marks]
                for side, marks in zip(("left", "right"), below, strict=True)
            ]
        watermarks = [mark for marks in below for mark in marks]
        if node.name == "EventTimeWatermark" and (match := _DELAY.match(node.arguments)):
            column = plain(self._scopes.below(node).resolve(match["column"]))
            watermarks.append(f"{column}: {match['delay']}")
        return watermarks


def _kind(node: Node) -> str | None:
    """Return what a node keeps state for; None where it keeps none."""
    if not node.streaming:
        return None
    if node.name == "Join":
        return "stream-stream join" if all(child.streaming for child in node.children) else None
    return _KINDS.get(node.name)


def _aggregate(node: Node, scope: Scope) -> dict[str, str]:
    parsed = lists(node.arguments)
    if parsed is None or len(parsed) < 2:  # noqa: PLR2004 - the keys, and the output
        return {"expressions": shown_arguments(node, scope)}
    keys = [scope.resolve(readable(key)) for key in parsed[0]]
    values = [alias["expression"] if (alias := _ALIAS.match(item)) else item for item in parsed[-1]]
    aggregates = dict.fromkeys(
        scope.resolve(part)
        for value in values
        if scope.resolve(value) not in keys
        for part in kept_aggregates(value)
    )
    properties = {"group keys": "", "aggregates": ", ".join(aggregates)}
    shown = []
    for key in keys:
        for opening, name in ((_SESSION, "session window"), (_WINDOW, "window")):
            if key.startswith(opening) and key.endswith(")") and name not in properties:
                properties[name] = key[len(opening) : -1]
                shown.append(name)
                break
        else:
            shown.append(key)
    return properties | {"group keys": ", ".join(shown) or "none"}


def _list(scope: Scope, expressions: Sequence[str], node: Node) -> str:
    if not expressions:
        return shown_arguments(node, scope)
    return ", ".join(scope.resolve(readable(expression)) for expression in expressions)


def _ids(expression: str) -> set[str]:
    return set(_ANY_ID.findall(expression))


def _used_below(node: Node, used: set[str] | None) -> set[str] | None:
    """Return the ids that a node and those above it use; None for all."""
    if node.name == "Project":
        parsed = lists(node.arguments)
        if parsed and used is not None:
            return {
                column
                for item in parsed[-1]
                if used & set(_ANY_ID.findall(item)[-1:])
                for column in _ids(item)
            }
        return _ids(node.arguments)
    if node.name in ("Aggregate", "Expand"):
        return _ids(node.arguments)
    return None if used is None else used | _ids(node.arguments)


def _sources(node: Node) -> set[str]:
    if not node.children:
        name = _SOURCE.search(node.arguments)
        return {name["name"]} if node.streaming and name else set()
    return {source for child in node.children for source in _sources(child)}


_NAMES = (
    "any|any_value|approx_count_distinct|approx_percentile|approx_top_k|array_agg|avg|bit_and|bit_or|bit_xor|"
    "bitmap_construct_agg|bitmap_or_agg|bool_and|bool_or|collect_list|collect_set|corr|count|count_if|count_min_sketch|"
    "covar_pop|covar_samp|every|first|first_value|grouping|grouping_id|histogram_numeric|hll_sketch_agg|hll_union_agg|"
    "kurtosis|last|last_value|listagg|max|max_by|mean|median|min|min_by|mode|percentile|percentile_approx|"
    "percentile_cont|percentile_disc|product|regr_avgx|regr_avgy|regr_count|regr_intercept|regr_r2|regr_slope|regr_sxx|"
    "regr_sxy|regr_syy|skewness|some|std|stddev|stddev_pop|stddev_samp|string_agg|sum|try_avg|try_sum|var_pop|var_samp|"
    "variance"
)
_CALL = re.compile(rf"(?<![\w.`])(?:{_NAMES})\(")
_FILTER = " FILTER ("


def kept_aggregates(expression: str) -> list[str]:
    """Return the calls of aggregate functions in an expression of a plan, with their filters.

    Returns:
        The calls, in their order; the whole expression where none is known, such as a function of a user.
    """
    calls = []
    position = 0
    while match := _CALL.search(expression, position):
        end = closing(expression, match.end())
        position = end
        if expression.startswith("#", end):
            continue  # the name of a column
        if expression.startswith(_FILTER, end):
            position = end = closing(expression, end + len(_FILTER))
        calls.append(expression[match.start() : end])
    return calls or [expression]
