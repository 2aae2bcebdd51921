"""Flags that many commands share, declared once as the fields of a dataclass.

A command takes one parameter of such a class; the decorator puts the fields into its signature, where typer
reads them, and calls it with one object:

```python
@app.command()
@target_flags
def status(flags: StreamFlags) -> None:
    target, streams = flags.select()
```
"""

import inspect
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.target.resolve import ResolvedTarget

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@dataclass(frozen=True, kw_only=True)
class TargetFlags:
    """The flags that decide which target a command works on.

    Attributes:
        landing: The folder that has every feed.
        kafka: The brokers that have every feed.
        as_json: Whether the output is JSON.
    """

    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="The target of tidemill.toml. Default: TIDEMILL_TARGET, or the default of the file.",
        ),
    ] = None
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake", metavar="LAKE", help="Replace the lake of the target: a folder, or s3://bucket/prefix."
        ),
    ] = None
    landing: Annotated[
        str | None,
        typer.Option(
            "--landing",
            metavar="DIR",
            help="Bind every feed to the folder DIR/<feed>/; DIR can also be s3://bucket/prefix.",
        ),
    ] = None
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka", metavar="BOOTSTRAP", help="Bind every feed to the topic of its name on these brokers."
        ),
    ] = None
    as_json: AsJson = False

    def __str__(self) -> str:
        """Return the flags as a part of a command line, each after a space."""
        values = {"target": self.target, "lake": self.lake, "landing": self.landing, "kafka": self.kafka}
        given = ((name, value) for name, value in values.items() if value is not None)
        return "".join(f" --{name} {shlex.quote(str(value))}" for name, value in given)

    def resolve(self) -> "ResolvedTarget":
        """Return the target.

        Raises:
            ConfigurationError: There is no such target, or its settings are wrong.
        """
        from tidemill.target.resolve import resolve

        return resolve(self.target, lake=self.lake, landing=self.landing, kafka=self.kafka)


@dataclass(frozen=True, kw_only=True)
class StreamFlags(TargetFlags):
    """The flags that decide which streams of which target a command works on.

    Attributes:
        exclude: Those that are left out.
    """

    selection: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SELECTION]...",
            help="Streams: ads, ads/impressions, ads/impressions+ (and its readers), +ads/attribution (and what it "
            "reads). Default: all streams.",
            show_default=False,
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="SELECTION", help="Leave out these streams; can be repeated."),
    ] = None

    def select(self) -> "tuple[ResolvedTarget, tuple[Stream, ...]]":
        """Return the target and the selected streams of its pipelines, in dependency order.

        Raises:
            ConfigurationError: There is no such target, its settings are wrong, or the selection matches no stream.
            DefinitionError: A pipeline declares a stream wrongly.
        """
        resolved = self.resolve()
        return resolved, selected(resolved, self.selection or (), self.exclude or ())


def selected(
    target: "ResolvedTarget", selection: Sequence[str], exclude: Sequence[str] = ()
) -> "tuple[Stream, ...]":
    """Return the streams of a target that a selection matches, in dependency order."""
    from tidemill.cli.shared.output import print_note
    from tidemill.definitions.selection import select

    loaded = target.pipelines()
    streams = loaded.streams()  # raises when not one pipeline can be loaded
    for failure in loaded.failures:
        print_note(f"tidemill: warning: {failure.error}")
    return select(streams, selection, exclude)


def target_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter that is a `TargetFlags` in a command's signature by one parameter per flag."""
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters
    (name,) = (
        name for name in parameters if inspect.isclass(hints[name]) and issubclass(hints[name], TargetFlags)
    )
    kind = hints[name]
    flags = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=get_type_hints(kind, include_extras=True)[field.name],
        )
        for field in sorted(fields(kind), key=lambda field: field.name in TargetFlags.__annotations__)
    ]

    @wraps(command)
    def with_flags(**arguments: Any) -> None:
        given = {flag.name: arguments.pop(flag.name) for flag in flags}
        command(**arguments, **{name: kind(**given)})

    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        for parameter in parameters.values()
        if parameter.name != name
    ]
    with_flags.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *flags]}
    return with_flags
