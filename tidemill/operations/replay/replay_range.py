"""A range of a stream, replayed in the way that its rows need: as a range, or as a whole."""

from functools import partial
from typing import TYPE_CHECKING

from tidemill.operations.replay.backfill import backfill
from tidemill.operations.replay.backfill_range import whole_because
from tidemill.operations.replay.follow import follow_backfills
from tidemill.operations.replay.lookback import lookback_of
from tidemill.operations.replay.rebuild import rebuild

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import timedelta

    from tidemill.definitions.stream import Stream
    from tidemill.operations.core.change import Change
    from tidemill.run.execute.progress import Live
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName


def replay_range(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    begin: str,
    end: str,
    run_id: str,
    selected: "Collection[StreamName]",
    lookback: "str | timedelta | None" = None,
    allow_missing: bool = False,
    keep_staging: bool = False,
    readers: "Sequence[Stream]" = (),
    live: "Live | None" = None,
    dry_run: bool = False,
    publish: bool = True,
) -> "Change":
    """Replay a range of a stream; a stream whose ranges cannot be computed alone is rebuilt.

    Args:
        stream: The stream.
        target: The target.
        engine: Where Spark sessions come from.
        begin: The first value of `backfill_by` that is replaced.
        end: The first value that is not.
        run_id: The id of the run in which a reader reads on.
        selected: The streams that were selected themselves. A reader of them without `backfill_by` is rebuilt.
        lookback: How much of the sources is read before and after the range, for the streams that were selected
            themselves; the others have their own.
        allow_missing: Whether to continue where sources no longer have everything.
        keep_staging: Whether the computed tables are kept.
        readers: The streams that may read its table and are not replayed, which the plan names.
        live: Where others see how far it is.
        dry_run: Whether it is planned only.
        publish: Whether its table changes; otherwise it is computed and compared.

    Raises:
        TidemillError: As `backfill` and `rebuild` do.
    """
    because = whole_because(stream)
    if because is None and stream.backfill_by is None and stream.name not in selected:
        because = "it declares no backfill_by"
    common = partial(
        rebuild if because else backfill,
        stream,
        target,
        engine,
        allow_missing=allow_missing,
        readers=readers,
        live=live,
        dry_run=dry_run,
        publish=publish,
    )
    given = lookback if stream.name in selected else None
    if because:
        lookback_of(stream, given)
        change = common()
        return change.because(f"It is rebuilt as a whole: {because}.")
    if not dry_run:
        follow_backfills(stream, target, engine, run_id)
    return common(begin=begin, end=end, lookback=given, keep_staging=keep_staging)
