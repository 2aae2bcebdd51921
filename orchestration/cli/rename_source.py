"""`tidemill rename-source`: a source of a stream that has another name now continues where it was."""

from functools import partial
from typing import Annotated

import typer

from orchestration.cli.change import DryRun, StreamArgument, Yes, change_stream, one_stream
from orchestration.cli.options import AsJson, Kafka, LakeFolder, Landing, TargetName

app = typer.Typer()


@app.command()
def rename_source(
    stream: StreamArgument,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The name in the checkpoint.")],
    new: Annotated[
        str,
        typer.Argument(
            metavar="NEW", help="The name in the definition; OLD again for a source that was removed."
        ),
    ],
    *,
    target: TargetName = None,
    lake: LakeFolder = None,
    landing: Landing = None,
    kafka: Kafka = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Let a source continue under another name, or continue one that was removed.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from pipelines.streaming import lifecycle

    resolved, renamed = one_stream(stream, target, lake, landing, kafka)
    change_stream(
        partial(lifecycle.rename_source, renamed, resolved, old, new),
        target=resolved.name,
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
    )
