"""The check `checkpoint_sound`: the next run can start from the checkpoint without losing or repeating data."""

from typing import TYPE_CHECKING

from tidemill.checkpoint.format.hadoop_checksum import matches, sidecar
from tidemill.checkpoint.format.logs import has_checkpoint, open_checkpoint
from tidemill.checkpoint.verify import Finding
from tidemill.checks.result import CheckResult
from tidemill.definitions.options import pinned_differences
from tidemill.errors import TidemillError
from tidemill.run.decide.preconditions import check_records, quick_verdict, stops_a_run
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidemill.checks.context import CheckContext

NAME = "checkpoint_sound"


def checkpoint_sound(context: "CheckContext") -> CheckResult:
    """Return whether the next run can start, as `tidemill checkpoint verify --quick` and the run decide it.

    The checkpoint must be the one that the tables were written with, and the settings that it keeps must be those
    that the stream declares.
    """
    snapshot = context.snapshot
    try:
        check_records(context.stream, snapshot)
    except TidemillError as error:
        fix = f"Fix: {error.fix}" if error.fix else ""
        return CheckResult(name=NAME, passed=False, summary=" ".join(filter(None, (error.what, fix))))
    if snapshot.manifest is None or (snapshot.query_id is None and not has_checkpoint(snapshot.checkpoint)):
        return CheckResult(name=NAME, passed=True, summary="The stream has no checkpoint yet.")
    verdict = quick_verdict(snapshot)
    errors = list(filter(stops_a_run, (*verdict.findings, *_changed_files(context))))
    warnings = [finding for finding in verdict.findings if finding.severity == "warning"]
    pinned = dict(snapshot.manifest.active.confs) | dict(verdict.inspection.conf)
    differences = pinned_differences(pinned, context.stream.query.declared_confs)
    return CheckResult(
        name=NAME,
        passed=not errors and not differences,
        severity="error" if errors else "warn",
        summary=_summary([*errors, *warnings], differences, snapshot.last_commit + 1),
        numbers={
            "batches": snapshot.last_commit + 1,
            "errors": len(errors),
            "warnings": len(warnings),
            "pinned_differences": len(differences),
            "checkpoint": str(snapshot.checkpoint),
        },
    )


def _changed_files(context: "CheckContext") -> "Iterator[Finding]":
    """Yield the newest files of the logs that are not as Spark wrote them, by their checksums.

    Spark reads them without comparing, and a changed digit in an offset or a watermark still parses.
    """
    folder = open_checkpoint(context.snapshot.checkpoint)
    tail = context.snapshot.tail
    names = ["metadata"]
    names += [] if tail.latest_offset is None else [f"offsets/{tail.latest_offset.batch_id}"]
    names += [] if tail.latest_commit is None else [f"commits/{tail.latest_commit.batch_id}"]
    for name in names:
        parent, slash, last = name.rpartition("/")
        checksums = f"{parent}{slash}{sidecar(last)}"
        if (
            folder.has(name)
            and folder.has(checksums)
            and not matches(folder.read(checksums), folder.blocks(name))
        ):
            yield Finding(
                "wrong-checksum",
                "error",
                name,
                f"The file does not match the checksums in {checksums}, so it is not what Spark wrote.",
                f"Restore it from a copy. If the change was intended, delete {checksums}.",
            )


def _summary(findings: "Sequence[Finding]", differences: "Sequence[str]", batches: int) -> str:
    lines = [*map(_line, findings), *differences]
    return "\n".join(lines) or f"The next run can start after {pluralize(batches, 'committed batch')}."


def _line(finding: "Finding") -> str:
    location = f" {finding.where}" if finding.where else ""
    fix = f" Fix: {finding.fix}" if finding.fix else ""
    return f"{finding.severity} {finding.code}{location}: {finding.what}{fix}"
