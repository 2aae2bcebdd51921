"""The watermarks of a plan."""

from tidemill.connectors.connector import READ_OBSERVATION
from tidemill.plans.plan_tree import Node, parse_plan, walk


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
