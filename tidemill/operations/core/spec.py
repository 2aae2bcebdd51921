"""OperationSpec: an operation, declared once. Its command, its Dagster job and its resume command come from it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.definitions.selection import select
from tidemill.errors import ConfigurationError
from tidemill.operations.core.change import Outcome, report_changes
from tidemill.records.operation import Operation, new_operation
from tidemill.run.execute.progress import Live
from tidemill.text.durations import flag_duration, format_duration

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.run.spark.engine import Engine
    from tidemill.target.resolve import ResolvedTarget
    from tidemill.text.names import StreamName
    from tidemill.text.report import Report

Kind = type[bool] | type[int] | type[str] | type[Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of an operation.

    Attributes:
        name: The name, as a parameter of the operation and in the config of the job.
        help: What it means, in a sentence or two.
        kind: The type that a user writes.
        choices: The strings that are allowed; empty for any.
        default: The default; None where the argument is optional.
        required: Whether it must be given.
        flag: The flag; empty for the one that follows from the name.
        metavar: What the value is called in a usage.
        positional: Whether it has no flag on a command line.
        minimum: The least number.
        read: Returns the value of a string; takes the name of the argument as `field`.
    """

    name: str
    help: str
    kind: Kind = str
    choices: tuple[str, ...] = ()
    default: Any = None
    required: bool = False
    flag: str = ""
    metavar: str | None = None
    positional: bool = False
    minimum: int | None = None
    read: Callable[..., Any] | None = None

    @property
    def option(self) -> str:
        """The flag."""
        return self.flag or f"--{self.name.replace('_', '-')}"

    @property
    def usage(self) -> str:
        """The flag with its value."""
        return f"{self.option} {self.metavar}" if self.metavar else self.option

    def value(self, given: Any, name: str) -> Any:
        """Return the value of what a user has written.

        Args:
            given: What the user has written.
            name: The name by which an error calls the argument.

        Raises:
            TidemillError: It is not a value of the argument.
        """
        if given is None:
            return None
        if self.minimum is not None and given < self.minimum:
            raise ConfigurationError(
                f"{name} is {given}.", fix=f"Give a number from {self.minimum} on.", code="argument-invalid"
            )
        return given if self.read is None else self.read(given, field=name)


def flag(name: str, text: str) -> Argument:
    """Return an argument that is either given or not."""
    return Argument(name=name, help=text, kind=bool, default=False)


ALLOW_MISSING = flag("allow_missing", "Continue if sources no longer have everything that is needed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an operation works on, besides its arguments.

    Attributes:
        known: All streams that could be loaded.
        streams: The streams that are changed, in dependency order.
        selected: Those of them that were selected themselves, and not as readers of others.
        run_id: The id of runs that the operation needs.
    """

    target: "ResolvedTarget"
    engine: "Engine"
    known: "Sequence[Stream]"
    streams: "Sequence[Stream]"
    selected: "frozenset[StreamName]"
    run_id: str
    live: Live = field(default_factory=Live)

    @property
    def readers(self) -> "Sequence[Stream]":
        """The streams that are not changed, and may read those that are."""
        names = {stream.name for stream in self.streams}
        return [stream for stream in self.known if stream.name not in names]


def _all(streams: "Sequence[Stream]", _target: "ResolvedTarget") -> "Sequence[Stream]":
    return streams


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSpec:
    """The declaration of an operation.

    Attributes:
        kind: What it is called in records and leases.
        words: The command after `tidemill`, if it is not `kind`.
        job: What follows the pipeline in the name of the Dagster job, if it is not `kind`.
        summary: What it does, in a sentence.
        description: More about it; for the help of the command.
        apply: Plans it for one stream, or does it: takes the stream, what it needs of the `Work`, `dry_run`, and the
            arguments, by name; an operation that `replays` also `publish`.
        one_of: The arguments of which exactly one is given; empty where they do not exclude each other.
        one_stream: Whether it changes one stream, and not a selection.
        replays: Whether it computes a selection of streams, and its readers where wanted, and then publishes them.
        eligible: Returns those of the selected streams that it can be applied to in a target.
        question: What is asked before it changes something.
        steps: The names of the steps in which it changes something, if those are always the same.
        report: Returns the plans, or what was done, as a report.
    """

    kind: str
    words: str = ""
    job: str = ""
    summary: str
    description: str = ""
    apply: Callable[..., Outcome]
    arguments: tuple[Argument, ...] = ()
    one_of: tuple[str, ...] = ()
    one_stream: bool = False
    replays: bool = False
    eligible: "Callable[[Sequence[Stream], ResolvedTarget], Sequence[Stream]]" = _all
    question: str = "Change it?"
    steps: tuple[str, ...] = ()
    report: "Callable[..., Report]" = report_changes

    @property
    def command(self) -> str:
        """The command after `tidemill`."""
        return self.words or self.kind

    @property
    def job_name(self) -> str:
        """What follows the pipeline in the name of the job."""
        return self.job or self.kind.replace("-", "_")

    def values(self, given: Mapping[str, Any], *, by_flag: bool) -> dict[str, Any]:
        """Return the values of arguments, by name.

        Args:
            given: What a user has written, by name.
            by_flag: Whether errors name the flags, as on a command line.

        Raises:
            TidemillError: A value is none of its argument, or not exactly one of those is given that exclude each
                other.
        """
        chosen = [name for name in self.one_of if _is_given(given.get(name))]
        if self.one_of and len(chosen) != 1:
            shown = [one.usage if by_flag else one.name for one in self.arguments if one.name in self.one_of]
            raise ConfigurationError(f"Name one of {', '.join(shown)}.", code="arguments-conflict")
        return {
            one.name: one.value(given.get(one.name, one.default), one.option if by_flag else one.name)
            for one in self.arguments
        }

    def work(
        self,
        target: "ResolvedTarget",
        engine: "Engine",
        known: "Sequence[Stream]",
        selection: Sequence[str],
        *,
        run_id: str,
        exclude: Sequence[str] = (),
        downstream: bool = False,
    ) -> Work:
        """Return what the operation works on.

        Args:
            selection: The streams to change, in the words of the command.
            run_id: The id of runs that the operation needs.
            exclude: Those that are left out.
            downstream: Whether the streams that read them are changed as well.

        Raises:
            ConfigurationError: The selection has no stream that the operation can be applied to, or several for an
                operation on one.
        """
        if self.replays and not selection:
            raise ConfigurationError(
                "Name the streams, such as ads/impressions, or a pipeline.", code="selection-missing"
            )
        selected = self.eligible(select(known, selection, exclude), target)
        if self.one_stream and len(selected) != 1:
            names = ", ".join(str(stream.name) for stream in selected)
            raise ConfigurationError(
                f"{' '.join(selection)!r} selects {len(selected)} streams.",
                fix=f"name one of {names}.",
                code="selection-ambiguous",
            )
        plus = "+" if downstream else ""
        wider = [f"{name.removesuffix('+')}+" for name in selection] if plus else None
        return Work(
            target=target,
            engine=engine,
            known=known,
            streams=selected if wider is None else select(known, wider, exclude),
            selected=frozenset(stream.name for stream in selected),
            run_id=run_id,
        )

    def change(self, stream: "Stream", *, work: Work, **arguments: Any) -> Outcome:
        """Plan the operation for one stream, or do it."""
        needed = {
            name: getattr(work, name) for name in signature(self.apply).parameters if hasattr(work, name)
        }
        return self.apply(stream, **needed, **arguments)

    def report_of(self, outcomes: Sequence[Outcome], values: Mapping[str, Any], *, changed: bool) -> "Report":
        """Return the plans, or what was done, as a report.

        Args:
            outcomes: A plan for each stream, or what was done.
            values: The arguments, of which lengths of time are part of the JSON.
            changed: Whether something was done.
        """
        report = self.report(outcomes, changed=changed)
        lengths = {
            f"{one.name}_seconds": None if value is None else value.total_seconds()
            for one in self.arguments
            if one.read is flag_duration
            for value in (values[one.name],)
        }
        return replace(
            report, key="" if self.one_stream else report.key, head={**lengths, "changed": changed}
        )

    def recorded(self, **values: Any) -> dict[str, Any]:
        """Return arguments as the record of an operation has them: those that are given, as JSON."""
        return {name: _written(value) for name, value in values.items() if value is not None}

    def begin(
        self, stream: "StreamName", arguments: Mapping[str, Any], decided: Mapping[str, Any]
    ) -> Operation:
        """Return the record of an operation that begins.

        Args:
            arguments: Its arguments, as they are recorded.
            decided: What is decided at its beginning.
        """
        command = self.resume_command(stream, arguments)
        return new_operation(self.kind, arguments, command=command, decided=decided)

    def resume_command(self, stream: "StreamName", arguments: Mapping[str, Any]) -> str:
        """Return the command that finishes an operation.

        Args:
            arguments: Its arguments, as they are recorded.
        """
        words = ["tidemill", *self.command.split(), str(stream)]
        for one in self.arguments:
            value = arguments.get(one.name)
            if _is_given(value):
                words += [] if one.positional else [one.option]
                words += [] if value is True else [shlex.quote(str(value))]
        return " ".join(words)


def _is_given(value: Any) -> bool:
    return value is not None and value is not False  # and 0 is given


def _written(value: Any) -> Any:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value
