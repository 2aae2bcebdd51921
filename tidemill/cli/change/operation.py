"""The command of an operation, made from its declaration: the plan first, then a question, then the change."""

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidemill.cli.shared.output import (
    EXIT_NOT_DONE,
    EXIT_PROBLEM,
    print_problem,
    print_report,
    progress_console,
)
from tidemill.cli.shared.target_flags import StreamFlags, TargetFlags, selected, target_flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from tidemill.definitions.stream import Stream
    from tidemill.engines.engine import SparkEngine
    from tidemill.operations.core.change import Outcome
    from tidemill.operations.core.spec import Argument, OperationSpec, Work
    from tidemill.target.resolve import ResolvedTarget

_STATUS = (
    "Exit status: 0, 1 if the change is not possible, 2 if --yes is missing or the settings are wrong, "
    "130 if interrupted."
)


@dataclass(frozen=True, kw_only=True)
class ChangeFlags(TargetFlags):
    """The flags of a command that changes one stream of a target.

    Attributes:
        yes: Whether to apply the plan without a question.
        dry_run: Whether to print the plan only.
    """

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False


@dataclass(frozen=True, kw_only=True)
class ChangesFlags(StreamFlags, ChangeFlags):
    """The flags of a command that changes the selected streams of a target."""


@dataclass(frozen=True, kw_only=True)
class ReplayFlags(ChangesFlags):
    """The flags of a command that replays the selected streams of a target.

    Attributes:
        downstream: Whether the streams that read the selected ones are replayed as well.
    """

    downstream: Annotated[
        bool, typer.Option("--downstream", help="Also replay the streams that read the selected ones.")
    ] = False


def app_of(spec: "OperationSpec", **options: Any) -> typer.Typer:
    """Return the command of an operation.

    Args:
        options: Further options of the command, for typer.
    """

    def command(*, flags: ChangeFlags, **given: Any) -> None:
        run_operation(spec, flags, given)

    kind = ChangeFlags if spec.one_stream else ReplayFlags if spec.replays else ChangesFlags
    parameters = [
        *(
            [_parameter("stream", str, typer.Argument(metavar="STREAM", help=_STREAM))]
            if spec.one_stream
            else []
        ),
        *map(_parameter_of, spec.arguments),
        Parameter("flags", Parameter.KEYWORD_ONLY, annotation=kind),
    ]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = "\n\n".join(filter(None, (spec.summary, spec.description, _STATUS)))
    app = typer.Typer(add_completion=False)
    app.command(spec.command.split()[-1], **options)(target_flags(command))
    return app


_STREAM = "The stream: ads/impressions."


def _parameter(name: str, kind: Any, declared: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared])


def _parameter_of(one: "Argument") -> Parameter:
    """Return an argument of an operation as a parameter of its command."""
    kind: Any = Literal[one.choices] if one.choices else one.kind
    if one.positional:
        return _parameter(one.name, kind, typer.Argument(metavar=one.name.upper(), help=one.help))
    option = typer.Option(one.option, metavar=one.metavar, min=one.minimum, help=one.help)
    if one.required:
        return _parameter(one.name, kind, option)
    return _parameter(one.name, kind if one.default is not None else kind | None, option, one.default)


def run_operation(spec: "OperationSpec", flags: ChangeFlags, given: dict[str, Any]) -> None:
    """Plan an operation for each stream, print the plans, ask, and apply those that change something.

    Args:
        flags: The flags that all such commands share.
        given: The arguments of the operation, as a user has written them; and `stream`, if it changes only one.
    """
    from tidemill.cli.run.run import new_run_id

    selection, exclude = [given.pop("stream", "")], list[str]()
    if isinstance(flags, ChangesFlags):
        selection, exclude = flags.selection or [], flags.exclude or []
    values = spec.values(given, by_flag=True)
    target = flags.resolve()
    console = progress_console(quiet=flags.as_json)
    with spark_of(target) as engine:
        work = spec.work(
            target,
            engine,
            selected(target, ()),
            selection,
            exclude=exclude,
            downstream=isinstance(flags, ReplayFlags) and flags.downstream,
            run_id=new_run_id(),
        )

        def one(stream: "Stream", **how: bool) -> "Outcome":
            return spec.change(stream, work=work, **values, **how)

        with console.status("planning ..."):
            outcomes = [one(stream, dry_run=True) for stream in work.streams]
        if not flags.as_json:
            print_report(spec.report_of(outcomes, values, changed=False), as_json=False)
        changes = any(outcome.changes for outcome in outcomes) and confirmed(flags, spec.question)
        for number, stream in enumerate(work.streams if changes else ()):
            if not outcomes[number].changes:
                continue
            if spec.replays:
                outcomes[number] = _published(partial(one, stream), work, console, ask=not flags.yes)
            else:
                with console.status("working ..."):
                    outcomes[number] = one(stream, dry_run=False)
            console.print(f"    {stream.name}  {outcomes[number].summary}", soft_wrap=True, markup=False)
    if flags.as_json or changes:
        report = spec.report_of(outcomes, values, changed=changes)
        print_report(report, as_json=flags.as_json, target=target.name)


def _published(replay: "Callable[..., Outcome]", work: "Work", console: "Console", *, ask: bool) -> "Outcome":
    """Compute a stream and publish it; before that, show the difference and ask about it where that is wanted."""
    from tidemill.cli.shared.live_view import LiveView

    with LiveView(console, work.live.streams) as view:
        done = view.until(partial(replay, dry_run=False, publish=not ask))
    if not ask:
        return done
    typer.echo(f"{done.stream}: {done.outcome}")
    if not typer.confirm("Publish it?", err=True):
        typer.echo("Not published. The same command publishes it, without computing it again.", err=True)
        raise typer.Exit(EXIT_PROBLEM)
    with console.status("publishing ..."):
        return replay(dry_run=False, publish=True)


def confirmed(flags: ChangeFlags, question: str) -> bool:
    """Return whether to apply the plan that was printed: as the flags say, or as the user answers.

    Raises:
        Exit: Nobody can be asked, or the answer is no.
    """
    if flags.dry_run or flags.yes:
        return not flags.dry_run
    if flags.as_json or not sys.stdin.isatty():
        print_problem("Nothing was changed. Fix: give --yes, or run the command in a terminal.")
        raise typer.Exit(EXIT_NOT_DONE)
    if not typer.confirm(question, err=True):
        raise typer.Exit(EXIT_PROBLEM)
    return True


@contextmanager
def spark_of(target: "ResolvedTarget") -> "Iterator[SparkEngine]":
    """Yield the engine of a target, which ends with the block; an interrupt ends the process.

    A change that was interrupted is finished by the same command.
    """
    from tidemill.cli.shared.interrupt import exit_interrupted, interruptible
    from tidemill.engines.engine import SparkEngine

    engine = SparkEngine(target.spark)
    try:
        with interruptible():
            yield engine
            engine.stop()
    except KeyboardInterrupt:
        exit_interrupted()
