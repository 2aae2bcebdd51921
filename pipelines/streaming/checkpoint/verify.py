"""Judges a checkpoint: everything that makes the next start fail, or lose or double rows, and lesser things.

`quick` looks at what a start needs: the tail of the logs, the ends of the files that sources and state are
read from. `full` reads every file.
"""

import os
from dataclasses import dataclass

from pipelines.streaming.checkpoint.check_logs import check_logs
from pipelines.streaming.checkpoint.check_operators import check_operators
from pipelines.streaming.checkpoint.check_order import check_history
from pipelines.streaming.checkpoint.check_sink import check_sink
from pipelines.streaming.checkpoint.check_sources import check_sources
from pipelines.streaming.checkpoint.check_state import StateCheck
from pipelines.streaming.checkpoint.contents import LZ4, Contents
from pipelines.streaming.checkpoint.damage import Damage, Progress
from pipelines.streaming.checkpoint.files import Item
from pipelines.streaming.checkpoint.findings import Finding, Findings, Level
from pipelines.streaming.checkpoint.inspection import Inspection, inspection_of
from pipelines.streaming.checkpoint.tail import opened

CODEC_CONF = "spark.sql.streaming.stateStore.compression.codec"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `verify` says of a checkpoint.

    Attributes:
        level: How far it looked.
        inspection: What is in the checkpoint.
        offset_log_versions: The format versions of the offset files that were read, ascending.
        commit_log_versions: The format versions of the commit files that were read, ascending.
        findings: What was found, errors first.
    """

    level: Level
    inspection: Inspection
    offset_log_versions: tuple[int, ...]
    commit_log_versions: tuple[int, ...]
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether the next start will work and read exactly what it should: no finding is an error."""
        return all(finding.severity != "error" for finding in self.findings)


def verify(
    path: str | os.PathLike[str],
    *,
    level: Level,
    on_progress: Progress | None = None,
    sink_batch: int | None = None,
) -> Verdict:
    """Judges the checkpoint at a path.

    Args:
        path: The checkpoint.
        level: `quick`: what a start needs. `full`: every file.
        on_progress: Told the bytes that are done and their total, at level `full`.
        sink_batch: The newest batch that the sink has, where that is known: the version of the Delta
            transaction with the query's id.

    Raises:
        NotACheckpointError: the path is no checkpoint.
    """
    folder = opened(path)
    seen = inspection_of(folder)
    found = Findings()
    full = level == "full"
    kinds = {source.key: source.kind for source in seen.sources}
    damage = Damage(Contents(folder, kinds, seen.conf.get(CODEC_CONF, LZ4), full=full))
    offset_versions, commit_versions = set(seen.offset_log_versions), set(seen.commit_log_versions)
    files: list[tuple[str, Item]] = []
    if full:
        files = list(folder.walk())
        for where in damage.examine(files, on_progress):
            _wrong_sum(where, found)
        history = check_history(folder, found)
        offset_versions |= history[0]
        commit_versions |= history[1]
    check_logs(folder, seen, damage, found)
    check_sources(folder, seen, damage, found)
    check_operators(folder, seen, damage, found)
    StateCheck(folder, seen, damage, found).run()
    _start(seen, found)
    if sink_batch is not None:
        check_sink(seen, sink_batch, found)
    _unreadable(seen, damage, found)
    if full:
        for problem in damage.unread():
            found.problem(problem, severity="warning", means="The next start does not read it.")
        _strangers(files, found)
    return Verdict(
        level=level,
        inspection=seen,
        offset_log_versions=tuple(sorted(offset_versions)),
        commit_log_versions=tuple(sorted(commit_versions)),
        findings=found.all(),
    )


def _start(seen: Inspection, found: Findings) -> None:
    start = seen.next_start
    if start is not None and start.kind == "no_data_batch":
        found.add(
            "info",
            "pending-no-data-batch",
            f"commits/{start.batch_id - 1}",
            "The last batch moved the watermark, and what that closed has not been given out: Spark does so "
            "with the next data, and without any, never.",
            "tidemill run gives it out.",
        )


def _wrong_sum(where: str, found: Findings) -> None:
    place, _, name = where.rpartition("/")
    sums = f"{place}/.{name}.crc" if place else f".{name}.crc"
    found.add(
        "warning",
        "wrong-sum",
        where,
        f"The sums in {sums} are not those of this file, so it is not byte for byte what Spark wrote. "
        "Spark does not compare them here and takes the file as it is.",
        f"Compare it with a copy. When the change was meant, delete {sums}.",
    )


def _unreadable(seen: Inspection, damage: Damage, found: Findings) -> None:
    """Files that the inspection could not read and no check has spoken of."""
    for problem in seen.problems:
        if problem.where in {"metadata", "offsets", "commits"} or problem.where.startswith(
            ("offsets/", "commits/")
        ):
            if not damage.asked(problem.where):
                found.problem(problem)
        else:
            damage.problem(problem.where)
            # Measured: Spark 4.2 starts without metadata of version 1 and fails without that of version 2.
            optional = problem.where.endswith("/_metadata/metadata") and problem.code != "unknown-version"
            found.problem(
                problem,
                severity="warning" if optional else "error",
                means="Stores and partitions are taken from the folders; Spark starts without this file."
                if optional
                else "The next start fails.",
            )


def _strangers(files: list[tuple[str, Item]], found: Findings) -> None:
    """What Spark left behind, and what it never wrote."""
    leftovers = [(path, item) for path, item in files if _is_temporary(item.name)]
    if leftovers:
        size = sum(item.size for _, item in leftovers)
        found.add(
            "info",
            "leftover-temporary",
            leftovers[0][0],
            f"{len(leftovers)} temporary files of killed attempts, {size} bytes; nothing reads them.",
            "They may be deleted while no query runs.",
        )
    for path, item in files:
        if item.kind == "outside":
            found.add(
                "warning",
                "outside-link",
                path,
                "A symbolic link that leaves the checkpoint; it was not followed.",
                "Put what it points at in its place.",
            )
        elif item.kind != "file":
            what = (
                "A folder deeper than Spark makes any" if item.kind == "folder" else "Neither file nor folder"
            )
            found.add("warning", "strange-file", path, f"{what}; Spark did not write it.", "Move it away.")


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith((".tmp", ".tmp.crc"))
