"""`tidemill accept`: continue where a run was refused or a check failed, with what a person has decided."""

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.shared.change import ChangeFlags, StreamArgument, change_stream
from tidemill.cli.shared.output import progress_console
from tidemill.cli.shared.target_flags import target_flags

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.target.resolve import ResolvedTarget

app = typer.Typer(add_completion=False)

_VERSION = re.compile(r"([a-z0-9_]+/[a-z0-9_]+)@([0-9]{1,18})", re.ASCII)


@app.command()
@target_flags
def accept(
    stream: StreamArgument,
    *,
    new_source: Annotated[
        str | None, typer.Option(metavar="NAME", help="This source is new: read it from its beginning.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(metavar="UPSTREAM@VERSION", help="Skip this commit, which removed rows: ads/clicks@7."),
    ] = None,
    change: Annotated[
        bool,
        typer.Option(
            "--change", help="Run the changed code on the state of the old code: see tidemill plan."
        ),
    ] = False,
    findings: Annotated[
        bool,
        typer.Option(
            "--findings", help="What the check exactly_once found is known: check what comes after it."
        ),
    ] = False,
    flags: ChangeFlags,
) -> None:
    """Accept a new source, a commit upstream that removed rows, changed code, or what a check has found.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill.errors import ConfigurationError
    from tidemill.operations import accept_findings, accept_new_source, accept_version
    from tidemill.text.names import StreamName

    resolved, reader = flags.stream(stream)
    commit = _VERSION.fullmatch(version or "")
    given = (new_source is not None) + (version is not None) + findings + change
    if given != 1 or (version is not None and commit is None):
        raise ConfigurationError(
            "Name what is accepted: --new-source NAME, --version UPSTREAM@VERSION such as ads/clicks@7, --change, or "
            "--findings."
        )
    if change:
        _accept_change(resolved, reader, flags)
        return
    decision = partial(accept_findings, reader, resolved)
    if new_source is not None:
        decision = partial(accept_new_source, reader, resolved, new_source)
    elif commit is not None:
        decision = partial(accept_version, reader, resolved, StreamName.parse(commit[1]), int(commit[2]))
    change_stream(decision, flags)


def _accept_change(target: "ResolvedTarget", stream: "Stream", flags: ChangeFlags) -> None:
    """Accept the code of a stream, whose query Spark builds."""
    from tidemill.engines.engine import SparkEngine
    from tidemill.operations import accept_change

    progress_console(quiet=flags.as_json).print("starting Spark ...")
    engine = SparkEngine(target.spark)
    try:
        change_stream(partial(accept_change, stream, target, engine), flags)
    finally:
        engine.stop()
