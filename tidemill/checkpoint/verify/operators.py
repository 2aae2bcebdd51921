"""The checks of the description of the state: operator metadata and schemas."""

from collections.abc import Iterator

from tidemill.checkpoint.format.errors import FileAbsentError
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.operators import Operator
from tidemill.checkpoint.inspection import Inspection
from tidemill.checkpoint.verify.damage import Damage
from tidemill.checkpoint.verify.findings import Findings
from tidemill.checkpoint.verify.logs import RESTORE, orphaned_checksum

_DELETE = "Delete it and its checksum file: Spark writes it again, and compares no schemas in that start."


def check_operators(folder: Folder, inspection: Inspection, damage: Damage, findings: Findings) -> None:
    """Check the metadata and the schemas of every readable operator."""
    for view in inspection.operators:
        metadata = f"state/{view.operator.id}/_metadata"
        if view.operator.metadata is None and not {"metadata", "v2"} & set(folder.names(metadata)):
            _missing_metadata(folder, view.operator, findings)
            orphaned_checksum(folder, f"{metadata}/metadata", findings)
        for path in _classic_schemas(view.operator):
            if not folder.has(path):
                orphaned_checksum(folder, path, findings)
            elif problem := damage.problem(path):
                findings.add_problem(problem, consequence="The next start fails.", fix=_DELETE)
        for store in view.operator.stores:
            for address in store.schema_files:
                _schema_file(folder, view.operator, address, damage, findings)


def _missing_metadata(folder: Folder, operator: Operator, findings: Findings) -> None:
    where = f"state/{operator.id}/_metadata"
    if folder.has(f"state/{operator.id}/_stateSchema"):
        findings.add(
            "error",
            "missing-operator-metadata",
            where,
            "The metadata that names the operator's schemas is missing: the next start fails.",
            RESTORE,
        )
    else:
        findings.add(
            "info",
            "missing-operator-metadata",
            where,
            "The operator has no metadata, as in Spark before 3.5: stores and partitions are taken from the "
            "folders. Spark starts and writes the file again.",
        )


def _classic_schemas(operator: Operator) -> Iterator[str]:
    """Yield the schema of each store; Spark keeps it in partition 0 only and writes a missing one again."""
    for _, partition, store in operator.folders():
        if partition == 0:
            yield f"{store}/_metadata/schema"


def _schema_file(
    folder: Folder, operator: Operator, address: str, damage: Damage, findings: Findings
) -> None:
    """Check a schema that the metadata names by an absolute address.

    Measured with Spark 4.2: a join of version 3 starts without the schema, transformWithState does not.
    """
    where = operator.metadata or ""
    needed = (operator.name or "").startswith("transformWithState")
    path = address.removeprefix("file://").removeprefix("file:").removeprefix(f"{folder.store.uri()}/")
    if not path.startswith(f"state/{operator.id}/_stateSchema/"):
        findings.add(
            "error" if needed else "warning",
            "moved",
            where,
            f"It names a schema at {address}, which is not in this checkpoint: the checkpoint was moved"
            + (", and the next start fails." if needed else "."),
            "Move the checkpoint back to its original path.",
        )
        return
    if not folder.has(path):
        findings.add_problem(
            FileAbsentError(path),
            severity="error" if needed else "warning",
            consequence="The operator reads it when it starts."
            if needed
            else "The next start compares no schemas.",
            fix=RESTORE if needed else "",
        )
    elif problem := damage.problem(path):
        consequence = "The operator reads it when it starts."
        findings.add_problem(problem, consequence=consequence, fix=RESTORE if needed else _DELETE)
    findings.add("info", "not-movable", where, "It contains absolute addresses: do not move this checkpoint.")
