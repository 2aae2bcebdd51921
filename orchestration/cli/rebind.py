"""`tidemill rebind`: a source of a stream continues in another folder, topic or cluster."""

from functools import partial
from typing import Annotated

import typer

from orchestration.cli.change import DryRun, StreamArgument, Yes, change_stream, one_stream
from orchestration.cli.options import AsJson, Kafka, LakeFolder, Landing, TargetName

app = typer.Typer()


@app.command()
def rebind(
    stream: StreamArgument,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source: an argument of the function.")],
    *,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Read everything in the new folder or topic.")
    ] = False,
    target: TargetName = None,
    lake: LakeFolder = None,
    landing: Landing = None,
    kafka: Kafka = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Accept what the target binds a source to now, after a comparison of both sides.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from pipelines.streaming import lifecycle

    resolved, bound = one_stream(stream, target, lake, landing, kafka)
    change_stream(
        partial(lifecycle.rebind, bound, resolved, source, from_beginning=from_beginning),
        target=resolved.name,
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
    )
