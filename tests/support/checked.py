"""What the checks of a stream say."""

from datetime import UTC, datetime, timedelta

from tidemill.checks.evaluation import evaluate


def failed_checks(scratch, stream, *, later=timedelta()):
    """The summaries of the checks that do not pass, now or later."""
    checks = evaluate(stream, scratch.target, now=datetime.now(UTC) + later)
    return [check.summary for check in checks if not check.passed]
