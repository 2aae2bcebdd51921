"""`tidemill accept`: go on where a run was refused, with what a person has decided."""

import re
from functools import partial
from typing import Annotated

import typer

from orchestration.cli.change import DryRun, StreamArgument, Yes, change_stream, one_stream
from orchestration.cli.options import AsJson, Kafka, LakeFolder, Landing, TargetName

app = typer.Typer()

_VERSION = re.compile(r"([a-z0-9_]+/[a-z0-9_]+)@([0-9]{1,18})", re.ASCII)


@app.command()
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
    target: TargetName = None,
    lake: LakeFolder = None,
    landing: Landing = None,
    kafka: Kafka = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Accept a new source, or a commit upstream that removed rows.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from pipelines.streaming.errors import ConfigurationError
    from pipelines.streaming.lifecycle import accept_new_source, accept_version
    from pipelines.streaming.names import StreamName

    resolved, reader = one_stream(stream, target, lake, landing, kafka)
    commit = _VERSION.fullmatch(version or "")
    if (new_source is None) == (version is None) or (version is not None and commit is None):
        raise ConfigurationError(
            "Name what is accepted: --new-source NAME, or --version UPSTREAM@VERSION such as ads/clicks@7."
        )
    change_stream(
        partial(accept_new_source, reader, resolved, new_source or "")
        if commit is None
        else partial(accept_version, reader, resolved, StreamName.parse(commit[1]), int(commit[2])),
        target=resolved.name,
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
    )
