"""The checks of what describes the state: operator metadata and schemas."""

from collections.abc import Iterator

from pipelines.streaming.checkpoint.check_logs import NEW_LIFE, orphaned_sums
from pipelines.streaming.checkpoint.damage import Damage
from pipelines.streaming.checkpoint.errors import FileAbsentError
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.findings import Findings
from pipelines.streaming.checkpoint.inspection import Inspection
from pipelines.streaming.checkpoint.operators import Operator

_MADE_AGAIN = "Delete it and its sum: Spark writes it again, and compares no schemas that once."


def check_operators(folder: Folder, seen: Inspection, damage: Damage, found: Findings) -> None:
    """The metadata and the schemas of every operator that could be read."""
    for view in seen.operators:
        place = f"state/{view.operator.id}/_metadata"
        if view.operator.metadata is None and not {"metadata", "v2"} & set(folder.names(place)):
            _missing_metadata(folder, view.operator, found)
            orphaned_sums(folder, f"{place}/metadata", found)
        for path in _classic_schemas(view.operator):
            if folder.item(path) is None:
                orphaned_sums(folder, path, found)
            elif problem := damage.problem(path):
                found.problem(
                    problem,
                    means="The next start fails.",
                    fix=_MADE_AGAIN,
                )
        for store in view.operator.stores:
            for address in store.schema_files:
                _schema_file(folder, view.operator, address, damage, found)


def _missing_metadata(folder: Folder, operator: Operator, found: Findings) -> None:
    where = f"state/{operator.id}/_metadata"
    if folder.item(f"state/{operator.id}/_stateSchema") is not None:
        found.add(
            "error",
            "missing-operator-metadata",
            where,
            "The operator keeps its schemas apart, and what names them is gone: the next start fails.",
            NEW_LIFE,
        )
    else:
        found.add(
            "info",
            "missing-operator-metadata",
            where,
            "The operator's name and stores are not written down, as Spark before 3.5 never did: stores and "
            "partitions are taken from the folders. Spark starts, and writes the file again.",
        )


def _classic_schemas(operator: Operator) -> Iterator[str]:
    """The schema of each store; Spark keeps it in partition 0 alone and writes a missing one again."""
    for _, partition, place in operator.folders():
        path = f"{place}/_metadata/schema"
        if partition == 0:
            yield path


def _schema_file(folder: Folder, operator: Operator, address: str, damage: Damage, found: Findings) -> None:
    """A schema that the metadata names by an absolute address.

    Measured with Spark 4.2: a join of version 3 starts rightly without it, transformWithState does not.
    """
    where = operator.metadata or ""
    needed = (operator.name or "").startswith("transformWithState")
    path = address.removeprefix("file://").removeprefix("file:").removeprefix(f"{folder.root}/")
    if not path.startswith(f"state/{operator.id}/_stateSchema/"):
        found.add(
            "error" if needed else "warning",
            "moved",
            where,
            f"It says that a schema lies at {address}, which is not in this checkpoint: the checkpoint was moved"
            + (", and the next start fails." if needed else "."),
            "Move the checkpoint back to where it was made.",
        )
        return
    if folder.item(path) is None:
        found.problem(
            FileAbsentError(path),
            severity="error" if needed else "warning",
            means="The operator reads it when it starts."
            if needed
            else "The next start compares no schemas.",
            fix=NEW_LIFE if needed else "",
        )
    elif problem := damage.problem(path):
        means = "The operator reads it when it starts."
        found.problem(problem, means=means, fix=NEW_LIFE if needed else _MADE_AGAIN)
    found.add("info", "not-movable", where, "It holds absolute addresses: do not move this checkpoint.")
