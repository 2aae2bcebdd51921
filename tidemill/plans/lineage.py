"""Which columns of the sources each output column is computed from, and which sources declare a plan's watermarks.

A column is left out wherever a part of its expression cannot be read: an entry is complete, or it is missing.
"""

from collections.abc import Mapping

from tidemill.connectors.connector import READ_OBSERVATION
from tidemill.plans.expressions import Column, Scopes, SourceColumn
from tidemill.plans.plan_tree import Node, parse_plan, walk

Lineage = Mapping[str, tuple[SourceColumn, ...]]
"""The columns of the sources that each output column is computed from."""


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
            key: (source, column.name)
            for source, snapshot in (static or {}).items()
            for key, column in _emitted(snapshot, {})
        }
        columns = [column for _, column in _emitted(plan, snapshots)]
    except (LookupError, ValueError, RecursionError):  # literals are not quoted, so one may look like a node
        return {}
    if [column.name for column in columns] != output:
        return {}
    return {column.name: tuple(sorted(column.origins)) for column in columns if column.origins}


def _emitted(plan: str, snapshots: Mapping[str, SourceColumn]) -> list[tuple[str, Column]]:
    root = parse_plan(plan)
    return [] if root is None else Scopes(snapshots).of(root).emitted()


def watermarks_in(plan: str) -> list[str | None]:
    """Return the watermarks of a plan: for each the name of the source that declares it, None for any other one.

    Args:
        plan: The analyzed plan as Spark prints it.
    """
    tree = parse_plan(plan)
    nodes = () if tree is None else walk(tree)
    return [_source_of(node) for node in nodes if node.name == "EventTimeWatermark"]


def _source_of(node: Node) -> str | None:
    """Return the name of the source whose rows are counted right below a watermark."""
    (below,) = node.children
    name = below.arguments.partition(",")[0]
    is_source = below.name == "CollectMetrics" and name.startswith(READ_OBSERVATION)
    return name.removeprefix(READ_OBSERVATION) if is_source else None
