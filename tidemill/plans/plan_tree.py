"""A plan of a query as a tree of nodes, parsed from the string that Spark prints.

The string is the only form that classic Spark and Spark Connect share, so a stream that moves from one to the other
keeps the meaning that was recorded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

_PREFIX = re.compile(r"^[ :]*[+:]- ")
# `*(1)` marks the code generation of a physical node.
_NODE = re.compile(r"^(?:\*\(\d+\) )?['~!]*(?P<name>[\w$]+) ?(?P<arguments>.*)$", re.DOTALL)
_BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}
_INDENT = 3
# Nodes that read each row of their input. Those that run Python over many rows may stop before the last one.
_READ_ALL = {
    "CollectMetrics",
    "EventTimeWatermark",
    "Expand",
    "Filter",
    "Generate",
    "Project",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "Sample",
    "SubqueryAlias",
    "Union",
    "View",
}


@dataclass(eq=False)
class Node:
    """A node of a plan.

    Attributes:
        name: The operator: `Project`, `Aggregate`, ...
        arguments: What Spark prints behind it.
        children: Its inputs.
        inner: The plans of subqueries in its expressions.
    """

    name: str
    arguments: str
    children: "list[Node]" = field(default_factory=list)
    inner: "list[Node]" = field(default_factory=list)

    @cached_property
    def streaming(self) -> bool:
        """Whether it has a streaming source."""
        if not self.children:
            return self.name.startswith("Streaming")
        return any(child.streaming for child in self.children)


def parse_plan(plan: str) -> Node | None:
    """Return the root of a plan; None where there is no plan.

    Args:
        plan: The plan as Spark prints it, one node per line.
    """
    lines: list[str] = []
    for line in plan.strip("\n").split("\n"):
        # A line without a branch continues a literal that has a line break.
        if lines and not _PREFIX.match(line):
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
    path: list[tuple[int, Node]] = []
    root: Node | None = None
    for line in lines:
        prefix = _PREFIX.match(line)
        depth = len(prefix[0]) if prefix else 0
        match = _NODE.match(line[depth:])
        if match is None:
            continue
        node = Node(match["name"], match["arguments"])
        while path and path[-1][0] >= depth:
            path.pop()
        if path:
            parent_depth, parent = path[-1]
            (parent.children if depth == parent_depth + _INDENT else parent.inner).append(node)
        else:
            root = node
        path.append((depth, node))
    return None if root is None else _inlined(root, {})


def _inlined(node: Node, definitions: dict[str, Node]) -> Node:
    """Put the definition of each common table expression where a query refers to it, as Spark does later."""
    if node.name == "WithCTE":
        *before, query = node.children
        for definition in before:
            definitions[_number(definition)] = _inlined(definition.children[0], definitions)
        return _inlined(query, definitions)
    if node.name == "CTERelationRef" and _number(node) in definitions:
        return definitions[_number(node)]
    node.children = [_inlined(child, definitions) for child in node.children]
    node.inner = [_inlined(child, definitions) for child in node.inner]
    return node


def _number(node: Node) -> str:
    return node.arguments.partition(",")[0]


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, with the plans of subqueries."""
    yield node
    for child in (*node.inner, *node.children):
        yield from walk(child)


def has_subquery(node: Node) -> bool:
    """Return whether an expression of a plan has a subquery."""
    return bool(node.inner) or any(map(has_subquery, node.children))


def reads_all(node: Node) -> bool:
    """Return whether a plan reads each row of its sources, if it is not left out as a whole.

    A subquery may become a join, which reads no row where its other side is empty.
    """
    if not node.children:
        return not node.inner
    return node.name in _READ_ALL and not node.inner and all(map(reads_all, node.children))


def lists(arguments: str) -> list[list[str]] | None:
    """Return the lists in brackets outside of all other brackets, each split into its items.

    Returns:
        The lists, or None where brackets do not match, as in a literal with a bracket.
    """
    lists: list[list[str]] = []
    depth = 0
    start = 0
    for position, character in enumerate(arguments):
        if depth == 0 and character == "[":
            start = position + 1
        depth += _BRACKETS.get(character, 0)
        if depth < 0:
            return None
        if depth == 0 and character == "]":
            lists.append(split(arguments[start:position]))
    return lists if depth == 0 else None


def split(items: str, separator: str = ", ") -> list[str]:
    """Split at a separator outside of all brackets; commas by default."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(items):
        depth += _BRACKETS.get(character, 0)
        if depth == 0 and items.startswith(separator, position):
            parts.append(items[start:position])
            start = position + len(separator)
    # A relation lists its columns without a space behind the comma, and names have no commas there.
    if len(parts) == 0 and re.fullmatch(r"[^(\[]+#\d+L?(?:,[^(\[,]+#\d+L?)+", items):
        return items.split(",")
    return [*parts, items[start:]] if items else []


def closing(expression: str, start: int) -> int:
    """Return the position behind the bracket that closes the one before the start."""
    depth = 1
    for position in range(start, len(expression)):
        depth += {"(": 1, ")": -1}.get(expression[position], 0)
        if depth == 0:
            return position + 1
    return len(expression)
