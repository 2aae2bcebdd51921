"""The checks of `metadata`, `offsets/` and `commits/`: a start can continue from them."""

from itertools import pairwise

from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.hadoop_checksum import sidecar
from tidemill.checkpoint.format.logs import batches_in, readable_offset
from tidemill.checkpoint.inspection import Inspection
from tidemill.checkpoint.verify.damage import Damage
from tidemill.checkpoint.verify.findings import Findings
from tidemill.checkpoint.verify.order import check_tail_order

SHUFFLE_CONF = "spark.sql.shuffle.partitions"
UNPINNED_PARTITIONS = "unpinned-partitions"
"""The code of the only error that `tidemill run` handles by itself."""
START_OVER = "start over with a new checkpoint and empty tables"
RESTORE = f"Restore it from a copy; without one, {START_OVER}."


def check_logs(
    folder: Folder, inspection: Inspection, damage: Damage, sink_batch: int | None, findings: Findings
) -> None:
    """Check what the next start reads: `metadata`, the last two offsets, the last commit."""
    offsets = batches_in(folder, "offsets")
    commits = batches_in(folder, "commits")
    _metadata(folder, damage, findings, begun=bool(offsets or commits))
    _unexpected_names(folder, findings)
    if not offsets:
        _without_offsets(findings, commits)
        return
    last = offsets[-1]
    folder.fetch([f"offsets/{last - 1}", f"commits/{last - 1}"])
    for where in (f"offsets/{last}", f"offsets/{last - 1}" if last else ""):
        problem = damage.problem(where) if where else None
        if problem is not None:
            newest = where == f"offsets/{last}"
            why = "" if newest else "A start reads the last two offsets. "
            fix = _fix_offsets(inspection, last, sink_batch) if newest else RESTORE
            findings.add_problem(problem, consequence=f"{why}The next start fails.", fix=fix)
    if commits and (problem := damage.problem(f"commits/{commits[-1]}")):
        findings.add_problem(
            problem,
            consequence="The next start fails.",
            fix=f"Delete commits/{commits[-1]} and its checksum file: the batch is repeated over the same range.",
        )
    _order(inspection, last, sink_batch, findings)
    if inspection.next_start is not None:
        next_batch = inspection.next_start.batch_id
        orphaned_checksum(folder, f"offsets/{next_batch}", findings)
        orphaned_checksum(folder, f"commits/{next_batch}", findings)
    check_tail_order(folder, inspection, last, findings)
    _unpinned_partitions(folder, inspection, findings)
    _gaps("offsets", offsets, last - 1, findings)
    _gaps("commits", commits, None, findings)


def orphaned_checksum(folder: Folder, path: str, findings: Findings) -> None:
    """Check for the checksum file of a missing file that Spark writes next: the write would fail."""
    parent, _, name = path.rpartition("/")
    checksums = f"{parent}/{sidecar(name)}"
    if not folder.has(path) and folder.has(checksums):
        findings.add(
            "error",
            "orphaned-checksum",
            checksums,
            f"{path} is missing and its checksum file exists: Spark fails when it writes {path} again.",
            f"Delete {checksums}.",
        )


def _metadata(folder: Folder, damage: Damage, findings: Findings, *, begun: bool) -> None:
    if not folder.has("metadata"):
        if begun:
            findings.add(
                "error",
                "missing-metadata",
                "metadata",
                "The query's id is missing. Spark 4.2 refuses to start; older versions take a new id, and a sink "
                "that identifies batches by the id writes them twice.",
                'Write {"id":"<id>"} into the file; the table\'s transactions and progress entries have the id.',
            )
    elif problem := damage.problem("metadata"):
        findings.add_problem(problem, consequence="The next start fails.", fix=RESTORE)


def _unexpected_names(folder: Folder, findings: Findings) -> None:
    """Check for names such as `007`, which Spark parses as a batch although it never writes them."""
    for log in ("offsets", "commits"):
        visible = [name for name in folder.names(log) if not name.startswith(".")]
        batches = batches_in(folder, log)
        if len(visible) == len(batches):
            continue
        for name in sorted(set(visible) - {str(batch) for batch in batches}):
            if name.removeprefix("+").removeprefix("-").isdecimal():
                findings.add(
                    "error",
                    "unexpected-name",
                    f"{log}/{name}",
                    "Spark parses the name as a batch and does not find that batch's file.",
                    "Move it out of the checkpoint.",
                )


def _without_offsets(findings: Findings, commits: list[int]) -> None:
    if commits:
        findings.add(
            "error",
            "commit-without-offsets",
            f"commits/{commits[-1]}",
            "There are commits and no offsets: the next start begins with batch 0 and reads everything again.",
            "Restore offsets/ from a copy; without one, start over with a new checkpoint and an empty sink.",
        )


def _fix_offsets(inspection: Inspection, last: int, sink_batch: int | None) -> str:
    """Return the fix for the newest offsets: a sink that has their batch skips any other batch of that number."""
    if inspection.latest_committed_batch != last - 1:
        return RESTORE
    if sink_batch is not None and sink_batch >= last:
        return (
            f"{RESTORE} Do not delete offsets/{last}: the table has batch {last}. The next start would form another "
            f"batch {last} with a different range, which the table skips, and its rows would be lost."
        )
    return (
        f"Restore it from a copy. Without one, delete offsets/{last} and its checksum file if no sink has batch "
        f"{last}: neither the main table, nor the quarantine table, nor any further sink. The next start forms "
        f"another batch {last} with a different range, and a sink that has batch {last} skips it and loses its rows. "
        f"If a sink has batch {last}, {START_OVER}."
    )


def _order(inspection: Inspection, last: int, sink_batch: int | None, findings: Findings) -> None:
    committed = inspection.latest_committed_batch
    if committed is not None and committed > last:
        findings.add(
            "error",
            "commit-without-offsets",
            f"commits/{committed}",
            f"Batch {committed} is committed and has no offsets: the next start repeats batch {last} and fails "
            "when it commits that batch.",
            _fix_commits(committed, last, sink_batch),
        )
    elif last > 0 and (committed is None or committed < last - 1):
        _uncommitted(inspection, last, sink_batch, findings)


def _fix_commits(committed: int, last: int, sink_batch: int | None) -> str:
    restore = f"Restore offsets/{committed} from a copy"
    if sink_batch is not None and sink_batch > last:
        return (
            f"{restore}; without one, {START_OVER}. Do not delete commits/{committed}: the table has batch "
            f"{sink_batch} and would skip another batch of that number."
        )
    return (
        f"{restore}. Without one, delete the commits after {last} and their checksum files if no sink has batch "
        f"{last + 1} or a later one: neither the main table, nor the quarantine table, nor any further sink. A sink "
        f"that has such a batch skips the next one of that number and loses its rows. In that case, {START_OVER}."
    )


def _uncommitted(inspection: Inspection, last: int, sink_batch: int | None, findings: Findings) -> None:
    """Add two or more batches without a commit: Spark repeats only the last one."""
    committed, commit = inspection.latest_committed_batch, inspection.latest_commit
    by_id = commit is not None and commit.state_unique_ids is not None
    written = sink_batch is not None and sink_batch >= last - 1
    batches = (
        f"No batch is committed, and batch {last} is planned, which happens after the commit of batch {last - 1}."
        if committed is None
        else f"Batches {committed + 1} to {last} have offsets and no commit; at most one batch should."
    )
    consequence = f"The next start repeats only batch {last}"
    if by_id:
        consequence += ", and the ids of the state before it are unknown."
    elif written:
        consequence += "; the table has the earlier batches."
    else:
        consequence += ": rows of the earlier batches are lost unless every sink has them."
    error = by_id or not written
    findings.add(
        "error" if error else "warning",
        "missing-commits" if committed is None else "several-uncommitted",
        "commits" if committed is None else f"commits/{last - 1}",
        f"{batches} {consequence}",
        f"Restore the commits up to {last - 1} from a copy; without one, {START_OVER}." if error else "",
    )


def _unpinned_partitions(folder: Folder, inspection: Inspection, findings: Findings) -> None:
    """Check a repeated second batch: Spark 4.2 does not pin the setting in the first offsets, and needs it there."""
    start, pinned = inspection.next_start, SHUFFLE_CONF in inspection.conf
    if start is None or start.kind != "repeat_batch" or not (pinned and inspection.since_spark_4_2):
        return
    before = readable_offset(folder, start.batch_id - 1)
    if before is not None and SHUFFLE_CONF not in before.conf:
        findings.add(
            "error",
            UNPINNED_PARTITIONS,
            f"offsets/{start.batch_id - 1}",
            f"It does not pin {SHUFFLE_CONF}, and Spark 4.2 compares the setting with that of the repeated batch: "
            "the next start fails with None.get.",
            "Start once with spark.sql.streaming.checkUnfinishedRepartitionOnRestart=false, as tidemill run does.",
        )


def _gaps(log: str, batches: list[int], required: int | None, findings: Findings) -> None:
    """Check for batches without a file between the oldest and the newest; one finding for all of them."""
    missing = []
    for low, high in pairwise(batches):
        if high != low + 1:
            missing.append(f"{low + 1}" if high == low + 2 else f"{low + 1} to {high - 1}")
    if missing and not (len(missing) == 1 and missing[0] == str(required)):
        findings.add(
            "warning",
            f"{log}-gap",
            log,
            f"There is no file for batch {', '.join(missing[:5])}"
            f"{' and more' if len(missing) > 5 else ''}. A start does not need it.",  # noqa: PLR2004
        )
