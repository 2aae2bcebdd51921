"""The checks of `metadata`, `offsets/` and `commits/`: do they fit together, can a start go on from them?"""

from itertools import pairwise

from pipelines.streaming.checkpoint.check_order import check_tail_order
from pipelines.streaming.checkpoint.checksums import sidecar
from pipelines.streaming.checkpoint.damage import Damage
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.findings import Findings
from pipelines.streaming.checkpoint.inspection import Inspection
from pipelines.streaming.checkpoint.tail import batches_in, readable_offset

SHUFFLE_CONF = "spark.sql.shuffle.partitions"
UNPINNED_PARTITIONS = "unpinned-partitions"
"""The one error that runs of ours get over by themselves."""
NEW_LIFE = "Restore it from a copy; without one, start over with a new checkpoint."


def check_logs(folder: Folder, seen: Inspection, damage: Damage, found: Findings) -> None:
    """What the next start reads of the logs: `metadata`, the last two offsets, the last commit."""
    offsets = batches_in(folder, "offsets")
    commits = batches_in(folder, "commits")
    _metadata(folder, damage, found, begun=bool(offsets or commits))
    _strange_names(folder, found)
    if not offsets:
        _without_offsets(found, commits)
        return
    last = offsets[-1]
    for where in (f"offsets/{last}", f"offsets/{last - 1}" if last else ""):
        problem = damage.problem(where) if where else None
        if problem is not None:
            means = "A start reads the last two offsets." if where != f"offsets/{last}" else ""
            found.problem(
                problem, means=f"{means} The next start fails.".strip(), fix=_mend_offsets(seen, last)
            )
    if commits and (problem := damage.problem(f"commits/{commits[-1]}")):
        found.problem(
            problem,
            means="The next start fails.",
            fix=f"Delete commits/{commits[-1]} and its sum: the batch is repeated over the same range.",
        )
    _order(seen, last, found)
    if seen.next_start is not None:
        next_batch = seen.next_start.batch_id
        orphaned_sums(folder, f"offsets/{next_batch}", found)
        orphaned_sums(folder, f"commits/{next_batch}", found)
    check_tail_order(folder, seen, last, found)
    _unpinned_partitions(folder, seen, found)
    _gaps("offsets", offsets, last - 1, found)
    _gaps("commits", commits, None, found)


def orphaned_sums(folder: Folder, path: str, found: Findings) -> None:
    """Sums of a file that is gone, where Spark will write the file again: it cannot, with the sums there."""
    place, _, name = path.rpartition("/")
    sums = f"{place}/{sidecar(name)}"
    if folder.item(path) is None and folder.item(sums) is not None:
        found.add(
            "error",
            "orphaned-sums",
            sums,
            f"{path} is gone and its sums are not: Spark writes it again and fails, as the sums exist.",
            f"Delete {sums}.",
        )


def _metadata(folder: Folder, damage: Damage, found: Findings, *, begun: bool) -> None:
    if folder.item("metadata") is None:
        if begun:
            found.add(
                "error",
                "missing-metadata",
                "metadata",
                "The query's id is gone. Spark 4.2 refuses to start; older ones take a new id, and a sink "
                "that knows batches by that id takes them twice.",
                'Write {"id":"<id>"} into it; the id is in the sink\'s transactions and in progress entries.',
            )
    elif problem := damage.problem("metadata"):
        found.problem(problem, means="The next start fails.", fix=NEW_LIFE)


def _strange_names(folder: Folder, found: Findings) -> None:
    """Names that a JVM reads as a number and we do not, such as `007`: Spark takes them for batches."""
    for log in ("offsets", "commits"):
        visible = [name for name in folder.names(log) if not name.startswith(".")]
        batches = batches_in(folder, log)
        if len(visible) == len(batches):
            continue
        for name in sorted(set(visible) - {str(batch) for batch in batches}):
            if name.removeprefix("+").removeprefix("-").isdecimal():
                found.add(
                    "error",
                    "strange-name",
                    f"{log}/{name}",
                    "Spark takes it for a batch and does not find that batch's file.",
                    "Move it out of the checkpoint.",
                )


def _without_offsets(found: Findings, commits: list[int]) -> None:
    if commits:
        found.add(
            "error",
            "commit-without-offsets",
            f"commits/{commits[-1]}",
            "There are commits and no offsets: the next start begins at batch 0 and reads everything again.",
            "Restore offsets/ from a copy; without one, start over with a new checkpoint and an empty sink.",
        )


def _mend_offsets(seen: Inspection, last: int) -> str:
    if seen.latest_committed_batch == last - 1:
        return (
            f"Restore it from a copy. Batch {last} is not committed: when the sink does not have it either, "
            f"delete offsets/{last} and its sum, and the next start plans the batch again."
        )
    return NEW_LIFE


def _order(seen: Inspection, last: int, found: Findings) -> None:
    committed = seen.latest_committed_batch
    if committed is not None and committed > last:
        found.add(
            "error",
            "commit-without-offsets",
            f"commits/{committed}",
            f"Batch {committed} is committed and has no offsets: the next start repeats batch {last} and "
            "fails when it commits it.",
            f"Restore offsets/{committed}, or delete the commits after {last} when no such batch ever ran.",
        )
    elif committed is None and last > 0:
        found.add(
            "warning",
            "missing-commits",
            "commits",
            f"No batch is committed, yet batch {last} was planned, which happens only after the one before. "
            f"The next start repeats batch {last}; a sink that knows batches skips it.",
        )
    elif committed is not None and committed < last - 1:
        by_id = seen.latest_commit is not None and seen.latest_commit.state_unique_ids is not None
        found.add(
            "error" if by_id else "warning",
            "several-uncommitted",
            f"commits/{last - 1}",
            f"The batches {committed + 1} to {last} have offsets and no commit; at most one should. The next "
            f"start repeats batch {last} alone"
            + (", and the ids of the state before it are not known." if by_id else "."),
            f"Restore the commits up to {last - 1} from a copy." if by_id else "",
        )


def _unpinned_partitions(folder: Folder, seen: Inspection, found: Findings) -> None:
    """Measured with Spark 4.2: it leaves the setting out of a query's first offsets, and then needs it there."""
    start, pinned = seen.next_start, SHUFFLE_CONF in seen.conf
    if start is None or start.kind != "repeat_batch" or not (pinned and seen.since_spark_4_2):
        return
    before = readable_offset(folder, start.batch_id - 1)
    if before is not None and SHUFFLE_CONF not in before.conf:
        found.add(
            "error",
            UNPINNED_PARTITIONS,
            f"offsets/{start.batch_id - 1}",
            f"It does not pin {SHUFFLE_CONF}, and Spark 4.2 compares it with that of the batch to be repeated: "
            "the next start fails with None.get.",
            "Start once with spark.sql.streaming.checkUnfinishedRepartitionOnRestart=false, as tidemill run does.",
        )


def _gaps(log: str, batches: list[int], required: int | None, found: Findings) -> None:
    """Batches between the oldest and the newest that have no file; one finding, however many."""
    missing = []
    for low, high in pairwise(batches):
        if high != low + 1:
            missing.append(f"{low + 1}" if high == low + 2 else f"{low + 1} to {high - 1}")
    if missing and not (len(missing) == 1 and missing[0] == str(required)):
        found.add(
            "warning",
            f"{log}-gap",
            log,
            f"No file for batch {', '.join(missing[:5])}{' and more' if len(missing) > 5 else ''}. "  # noqa: PLR2004
            "A start does not read them.",
        )
