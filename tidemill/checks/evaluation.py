"""The checks of a stream: which it has, and their evaluation, by a run, a schedule or the command."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tidemill.catalog.names import is_in_catalog
from tidemill.catalog.sources import located
from tidemill.checks.backlog import backlog, waiting_since
from tidemill.checks.checkpoint_sound import checkpoint_sound
from tidemill.checks.context import CheckContext
from tidemill.checks.event_times import freshness, has_watermark, watermark
from tidemill.checks.exactly_once import Comparison, compare, exactly_once
from tidemill.checks.in_catalog import in_catalog
from tidemill.checks.result import CheckResult, unevaluated
from tidemill.checks.rows import expectation, late_rows, quarantine
from tidemill.checks.state_bounded import state_bounded
from tidemill.connectors.feed import feed_of
from tidemill.errors import TidemillError, TransientError
from tidemill.records.check_state import Checked
from tidemill.records.stream_records import StreamRecords
from tidemill.text.names import RESERVED_RULES

if TYPE_CHECKING:
    from datetime import datetime

    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Holder
    from tidemill.run.execute.results import StreamResult
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

    Check = Callable[[CheckContext], CheckResult]

_NEEDS_RUN = RESERVED_RULES - {"checkpoint_sound"}
"""The checks that have nothing to check before the first run."""
_NEEDS_REST = ("checkpoint_sound", "exactly_once", "watermark", "state_bounded")
"""The checks that would take what a running query has half written for damage."""


def check_names(stream: "Stream", target: "Target | None" = None) -> tuple[str, ...]:
    """Return the checks of a stream, its expectations last: those that its declaration allows to evaluate.

    Args:
        stream: The stream.
        target: The target, which may have a catalog; None where that is left open.
    """
    catalog = ("in_catalog",) if is_in_catalog(stream, target) else ()
    return (*_check_names(stream), *catalog, *(rule.name for rule in stream.expect))


def evaluate(
    stream: "Stream",
    target: "Target",
    now: "datetime",
    *,
    result: "StreamResult | None" = None,
    names: Collection[str] | None = None,
    streams: "Mapping[StreamName, Stream] | None" = None,
) -> tuple[CheckResult, ...]:
    """Evaluate checks of a stream. A check that fails to be evaluated is a result, too, and never an exception.

    After a run, a busy or skipped stream has none. A failed stream has no result of an expectation, other than the one
    that stopped it: the others were not evaluated.

    Args:
        result: What a run has just done to the stream; None without a run.
        names: The checks; None for all.
        streams: All streams of the target by name, to follow an event to its origin.
    """
    records = StreamRecords(target.lake, stream.name)
    selected = [name for name in check_names(stream, target) if names is None or name in names]
    if result is not None and result.outcome in ("busy", "skipped"):
        return ()
    if result is not None and result.outcome not in ("updated", "idle"):
        stopping = None if result.error is None else result.error.rule
        not_evaluated = {rule.name for rule in stream.expect} - {stopping}
        selected = [name for name in selected if name not in not_evaluated]
    try:
        snapshot = records.snapshot()
    except TransientError as error:  # a store that does not answer says nothing about the checkpoint
        return tuple(unevaluated(name, str(error)) for name in selected)
    except (TidemillError, OSError) as error:
        holder = None if result is not None else records.holder()
        return tuple(_unreadable(name, error, holder) for name in selected)
    context = CheckContext(
        stream=located(stream, snapshot.sources),
        target=target,
        snapshot=snapshot,
        now=now,
        result=result,
        before=records.checked(),
        streams=streams or {},
    )
    comparison = cache(partial(compare, context))
    results = tuple(_evaluation(context, selected, comparison))
    _record(context, {result.name: result for result in results}, comparison)
    return results


def _check_names(stream: "Stream") -> Iterator[str]:
    yield from ("checkpoint_sound", "exactly_once")
    if has_watermark(stream):
        yield from ("watermark", "late_rows")
    if feed_of(stream) is None:  # a feed is ingested without state
        yield "state_bounded"
    yield "backlog"
    if stream.checks.freshness is not None and (stream.checks.event_time or has_watermark(stream)):
        yield "freshness"
    if feed_of(stream) is not None:
        yield "quarantine"


def _evaluation(
    context: CheckContext, names: Collection[str], comparison: "Callable[[], Comparison]"
) -> Iterator[CheckResult]:
    checks: dict[str, Check] = {
        "checkpoint_sound": checkpoint_sound,
        "exactly_once": lambda _context: exactly_once(comparison()),
        "watermark": watermark,
        "late_rows": late_rows,
        "state_bounded": state_bounded,
        "backlog": backlog,
        "freshness": freshness,
        "quarantine": quarantine,
        "in_catalog": in_catalog,
    }
    checks |= {rule.name: partial(expectation, rule=rule) for rule in context.stream.expect}
    for name in names:
        result = _guarded(context, name, checks[name])
        severity = context.bounds.severity.get(name)
        yield result if severity is None else replace(result, severity=severity)


def _guarded(context: CheckContext, name: str, check: "Check") -> CheckResult:
    """Evaluate a check, unless the stream has never run or is running: it must not fail a run that did its work."""
    if context.snapshot.manifest is None and name in _NEEDS_RUN:
        return CheckResult(name=name, passed=True, summary="The stream has never run.")
    if name in _NEEDS_REST and context.result is None and (holder := context.snapshot.records.holder()):
        return _running(name, holder)
    try:
        return check(context)
    except Exception as error:  # noqa: BLE001 - whatever it is becomes the result
        if name == "checkpoint_sound":  # the next run would fail at it, too
            return CheckResult(
                name=name, passed=False, summary=f"The checkpoint could not be verified: {error}"
            )
        return unevaluated(name, f"The check could not be evaluated: {type(error).__name__}: {error}")


def _running(name: str, holder: "Holder") -> CheckResult:
    summary = f"A run is writing, and evaluates the check at its end: {holder}"
    return CheckResult(name=name, passed=True, summary=summary)


def _unreadable(name: str, error: Exception, holder: "Holder | None") -> CheckResult:
    """Return the result of a check of a stream whose records cannot be read."""
    if holder is not None:
        return _running(name, holder)
    if name == "checkpoint_sound":
        fix = (
            " Fix: tidemill checkpoint verify names the damaged file."
            if not getattr(error, "fix", "")
            else ""
        )
        return CheckResult(name=name, passed=False, summary=f"{error}{fix}")
    return unevaluated(name, "The records of the stream cannot be read; see checkpoint_sound.")


def _record(
    context: CheckContext, results: Mapping[str, CheckResult], comparison: "Callable[[], Comparison]"
) -> None:
    """Record for the next check what has been compared and what waits, where it was evaluated."""
    if context.snapshot.manifest is None:
        return
    before = context.before or Checked()
    after = before
    compared, counted = results.get("exactly_once"), results.get("backlog")
    if compared is not None and compared.numbers.get("findings") == 0:
        after = replace(after, position=comparison().position, sinks_behind={})
    if counted is not None and "waiting_seconds" in counted.numbers:
        since = waiting_since(context, context.plan.backlog)
        after = replace(
            after,
            backlog={source: waiting.count for source, waiting in context.plan.backlog.items()},
            waiting_since=None if since is None else since.isoformat(),
            waiting_batch=None if since is None else context.snapshot.last_commit,
        )
    if after != before:
        with suppress(OSError):  # a lake that this user may only read
            context.snapshot.records.write_checked(after)
