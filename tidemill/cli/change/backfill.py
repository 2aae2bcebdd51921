"""`tidemill backfill`: a range of streams' tables is computed again, beside the live streams."""

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from tidemill.cli.change.operation import app_of
from tidemill.cli.shared.output import print_report
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.operations.replay.backfill import BACKFILL
from tidemill.text.report import Column, Report, rows_of

if TYPE_CHECKING:
    from tidemill.operations.replay.coverage import Coverage
    from tidemill.records.operation import Operation

_status = typer.Typer(add_completion=False)

_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Column", "column"),
    Column("From", lambda row: row["begin"] or "first", whole=True),
    Column("To", lambda row: row["end"] or "last", whole=True),
    Column("Computed by", lambda row: row["operation"] or "its own runs"),
    Column("Ended", "ended_at"),
    Column("Code", "code"),
)


@_status.command()
@target_flags
def status(flags: StreamFlags) -> None:
    """Show which ranges of tables were computed by which operation and code, without starting Spark.

    The last operation counts. All other rows come from the stream's own runs. Streams without backfill_by are left out.

    Exit status: 0, or 2 if the settings are wrong or no selected stream declares backfill_by.
    """
    from tidemill.errors import ConfigurationError
    from tidemill.operations.replay.coverage import coverage

    target, streams = flags.select()
    covered = [coverage(stream, target) for stream in streams if stream.backfill_by is not None]
    if not covered:
        raise ConfigurationError(
            "no selected stream declares backfill_by, so there are no ranges.",
            fix="select others; tidemill operations lists the rebuilds of all streams.",
            code="backfill-by-missing",
        )
    items = list(map(_item, covered))
    report = Report(
        items=items,
        columns=_COLUMNS,
        rows=rows_of(items, "ranges"),
        lines=[
            f"{item['stream']}: {operation} is by another column or type."
            for item in items
            for operation in item["by_other_columns"]
        ],
    )
    print_report(report, as_json=flags.as_json, target=target.name)


def _item(covered: "Coverage") -> dict[str, Any]:
    return {
        "stream": str(covered.stream),
        "column": covered.column,
        "ranges": [{"begin": span.begin, "end": span.end, **_operation(span.by)} for span in covered.ranges],
        "by_other_columns": [operation.id for operation in covered.other],
    }


def _operation(operation: "Operation | None") -> dict[str, Any]:
    """Return what computed a range; only nulls for the stream's own runs."""
    if operation is None:
        return dict.fromkeys(("operation", "kind", "ended_at", "code"))
    return {
        "operation": operation.id,
        "kind": operation.kind,
        "ended_at": operation.ended_at,
        "code": operation.result.get("code"),
    }


class _WithStatus(TyperCommand):
    """The command with a subcommand: a first argument that is not `status` is a selection of streams."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the subcommands."""
        del ctx
        return ["status"]

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a subcommand; None where there is none of that name."""
        if name not in self.list_commands(ctx):
            return None
        command = typer.main.get_command(_status)
        command.name = name
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the subcommand, if it is called, or of the command itself."""
        command = self.get_command(None, args[0]) if args else None
        if command is None:
            return super().make_context(info_name, args, parent, **extra)
        return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Invoke the command that the context was made for."""
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


app = app_of(
    BACKFILL,
    cls=_WithStatus,
    epilog="tidemill backfill status [SELECTION]...: show which ranges were computed by which code.",
)
