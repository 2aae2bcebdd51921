"""What a run or a check refuses and a person may accept: a source, a sink, a commit, code, findings of a check."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidemill.catalog.sources import located
from tidemill.checks.context import CheckContext
from tidemill.checks.exactly_once import compare, newest_position
from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import ConfigurationError
from tidemill.operations.core.change import Change, changing
from tidemill.operations.core.spec import Argument, OperationSpec, flag
from tidemill.operations.edits.code_changes import build_now
from tidemill.operations.edits.new_sink import accept_new_sink
from tidemill.plans import state_compatibility as code_change
from tidemill.records.check_state import Checked
from tidemill.records.manifest import AcceptedChange
from tidemill.run.decide.sources import streaming_sources
from tidemill.run.tables.guard import append_readings, refused_commits
from tidemill.text.durations import now_iso
from tidemill.text.names import StreamName

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target


def accept_new_source(stream: "Stream", target: "Target", name: str, *, dry_run: bool = False) -> Change:
    """Accept that a source is really another one, which is read from its beginning.

    Args:
        stream: The stream, as it is defined now.

    Raises:
        TerminalError: The definition has no such source, or its checkpoint has a position in it.
        LeaseHeldError: A run holds the stream's lease.
    """
    with changing(stream, target, "accept", dry_run=dry_run) as subject:
        declared = streaming_sources(stream)
        entry = subject.snapshot.tail.latest_offset
        offsets = {} if entry is None else entry.offsets
        if name not in declared:
            raise subject.refuse(
                f"its definition has no streaming source {name!r}.",
                f"name one of {', '.join(declared)}.",
                code="source-not-declared",
            )
        if offsets.get(name) is not None:
            raise subject.refuse(
                f"its checkpoint has a position in the source {name!r}, so the source is not new.",
                "no action is needed; run the stream.",
                code="nothing-to-change",
            )
        leaving = [known for known in offsets if known not in declared]
        effects = [f"The next run reads {declared[name].describe()} from its beginning."]
        effects += [f"The source {known!r} is no longer read." for known in leaving]
        if not dry_run:
            subject.writer.archive_source(name)
            subject.record({**subject.sources, name: SourceRecord(accepted_as_new=True)})
        return Change(
            stream=stream.name,
            what=f"The source {name!r} is accepted as a new one.",
            effects=tuple(effects),
            copies=subject.copies,
        )


def accept_findings(stream: "Stream", target: "Target", *, dry_run: bool = False) -> Change:
    """Accept what the check `exactly_once` has found: later checks begin after the newest batch.

    Raises:
        TerminalError: The check finds nothing.
        LeaseHeldError: A run holds the stream's lease.
    """
    with changing(stream, target, "accept", dry_run=dry_run) as subject:
        records = subject.snapshot.records
        before = records.checked() or Checked()
        context = CheckContext(
            stream=located(stream, subject.snapshot.sources),
            target=target,
            snapshot=subject.snapshot,
            now=datetime.now(UTC),
            before=before,
        )
        findings = compare(context).findings
        if not findings:
            raise subject.refuse(
                "the check exactly_once has found nothing.", "no action is needed.", code="nothing-to-change"
            )
        if not dry_run:
            records.write_checked(replace(before, position=newest_position(context), sinks_behind={}))
        return Change(
            stream=stream.name,
            what="What exactly_once has found is accepted, and later checks begin after the newest batch.",
            effects=findings,
        )


def accept_version(
    stream: "Stream", target: "Target", upstream: "StreamName", version: int, *, dry_run: bool = False
) -> Change:
    """Accept a commit of an upstream table that removed or changed rows: the stream skips it.

    Args:
        upstream: The stream whose table has the commit.

    Raises:
        TerminalError: The stream does not read that table as append-only, or its next run does not refuse that
            version.
        LeaseHeldError: A run holds the stream's lease.
    """
    with changing(stream, target, "accept", dry_run=dry_run) as subject:
        names = [name for name, read in append_readings(stream).items() if read == upstream]
        if not names:
            raise subject.refuse(
                f"it does not read new rows of {upstream}.",
                f"name one of {', '.join(map(str, stream.upstreams)) or 'its upstream streams'}.",
                code="upstream-not-read",
            )
        refused = {
            commit.version: commit
            for read, commit in refused_commits(stream, target.lake, subject.snapshot.tail, subject.sources)
            if read == upstream
        }
        if version not in refused:
            versions = ", ".join(f"{upstream}@{number}" for number in sorted(refused))
            raise subject.refuse(
                f"its next run does not refuse version {version} of {upstream}.",
                f"name one of {versions}." if versions else "no action is needed; run the stream.",
                code="nothing-to-change",
            )
        commit = refused[version]
        effects = [f"Rows that the commit removed from {upstream} stay in the table of {stream.name}."]
        if commit.adds_rows:
            effects.append(
                f"Rows that the commit wrote, such as changed ones, are not read by {stream.name}."
            )
        if not dry_run:
            records = {name: subject.sources.get(name, SourceRecord()) for name in names}
            accepted = {
                name: replace(record, accepted_versions=tuple(sorted({*record.accepted_versions, version})))
                for name, record in records.items()
            }
            subject.record({**subject.sources, **accepted})
        return Change(
            stream=stream.name,
            what=f"Version {version} of {upstream} ({commit.operation}) is accepted, and {stream.name} skips it.",
            effects=tuple(effects),
        )


def accept_change(stream: "Stream", target: "Target", engine: "Engine", *, dry_run: bool = False) -> Change:
    """Accept code that does not fit the state: the next run continues the state with it.

    Args:
        stream: The stream, as it is defined now.
        target: The target.
        engine: Where the session that builds its query comes from.
        dry_run: Whether the change is planned only.

    Raises:
        TerminalError: The next run does not refuse the code.
        LeaseHeldError: A run holds the stream's lease.
    """
    with changing(stream, target, "accept", dry_run=dry_run) as subject:
        active = subject.manifest.active
        built = build_now(stream, target, engine, subject.snapshot)
        verdict = code_change.verdict(active, subject.snapshot.tail, built.operators, built.fingerprint)
        if verdict.kind not in ("mixes_state", "refused_by_spark"):
            raise subject.refuse(
                "its next run does not refuse a change of its code.",
                "no action is needed; run the stream.",
                code="nothing-to-change",
            )
        differences = [str(difference) for difference in verdict.differences]
        effect = (
            "The next run starts the new code on the state of the old code, which mixes both meanings."
            if verdict.kind == "mixes_state"
            else "The next run starts the new code on the state of the old code, and Spark will probably refuse it."
        )
        if not dry_run:
            accepted = AcceptedChange(
                accepted_at=now_iso(),
                last_batch=subject.snapshot.last_commit,
                differences=tuple(differences),
                before=active.operators,
            )
            manifest = subject.manifest.with_active(
                operators=built.operators, accepted_changes=(*active.accepted_changes, accepted)
            )
            subject.snapshot.records.write_manifest(manifest)
        return Change(
            stream=stream.name,
            what="The change of its code is accepted.",
            effects=(*differences, effect),
        )


_VERSION = re.compile(r"([a-z0-9_]+/[a-z0-9_]+)@([0-9]{1,18})", re.ASCII)


def _upstream_version(value: str, *, field: str) -> tuple[StreamName, int]:
    """Return the stream and the version that a user has written."""
    commit = _VERSION.fullmatch(value)
    if commit is None:
        raise ConfigurationError(
            f"{field} is {value!r}.", fix="Name the commit such as ads/clicks@7.", code="argument-invalid"
        )
    return StreamName.parse(commit[1]), int(commit[2])


def _accept(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    new_source: str | None,
    new_sink: str | None,
    version: tuple[StreamName, int] | None,
    change: bool,
    findings: bool,
    fill: bool,
    dry_run: bool,
) -> Change:
    del findings  # what is left
    if fill and new_sink is None:
        raise ConfigurationError(
            "--fill is about a new sink.", fix="Give --new-sink NAME.", code="arguments-conflict"
        )
    if new_source is not None:
        return accept_new_source(stream, target, new_source, dry_run=dry_run)
    if new_sink is not None:
        return accept_new_sink(stream, target, new_sink, engine=engine if fill else None, dry_run=dry_run)
    if version is not None:
        return accept_version(stream, target, *version, dry_run=dry_run)
    if change:
        return accept_change(stream, target, engine, dry_run=dry_run)
    return accept_findings(stream, target, dry_run=dry_run)


ACCEPT = OperationSpec(
    kind="accept",
    summary="Accept a new source or sink, an upstream commit that removed rows, changed code, or findings of a check.",
    apply=_accept,
    arguments=(
        Argument(name="new_source", help="This source is new: read it from its beginning.", metavar="NAME"),
        Argument(
            name="version",
            help="Skip this commit, which removed rows: ads/clicks@7.",
            metavar="UPSTREAM@VERSION",
            read=_upstream_version,
        ),
        flag("change", "Continue the state of the old code with the changed code: see tidemill plan."),
        flag(
            "findings",
            "Accept the findings of the check exactly_once: later checks begin after the newest batch.",
        ),
        Argument(name="new_sink", help="This sink is new: let it begin with the next batch.", metavar="NAME"),
        flag("fill", "With --new-sink: first write the rows that the stream's table has now."),
    ),
    one_of=("new_source", "version", "change", "findings", "new_sink"),
    one_stream=True,
)
