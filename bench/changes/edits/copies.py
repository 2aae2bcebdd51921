"""Older copies of what a stream has, and parts that are missing."""

import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from bench.changes.edits.edit import Applied, Must, edit
from bench.changes.world import Backup, World


def _older(world: World) -> tuple[str, Backup] | None:
    """Return a stream and a backup of its present life, if there is one."""
    candidates = [
        (stream, backup)
        for backup in world.backups
        for stream in world.streams
        if backup.updates[stream] and backup.lives[stream] == world.lives[stream]
    ]
    return world.rng.choice(candidates) if candidates else None


def _put_back(world: World, stream: str, backup: Backup, wanted: Callable[[str], bool]) -> Callable[[], None]:
    """Replace folders of a stream by those of a backup; return how the newer ones come back."""
    aside = world.base / f"aside-{world.number('aside')}"
    moved: list[tuple[Path, Path]] = []
    for kind, path in world.paths(stream).items():
        if not wanted(kind) or not path.exists():
            continue
        kept = aside / kind
        kept.parent.mkdir(parents=True, exist_ok=True)
        path.rename(kept)
        moved.append((kept, path))
        copy = backup.root / path.relative_to(Path(world.lake.uri))
        if copy.exists():
            shutil.copytree(copy, path)

    def undo() -> None:
        for kept, path in moved:
            shutil.rmtree(path, ignore_errors=True)
            kept.rename(path)

    return undo


def _older_part(world: World, what: str, wanted: Callable[[str], bool], must: Must) -> Applied | None:
    chosen = _older(world)
    if chosen is None:
        return None
    stream, backup = chosen
    since = world.updates[stream] - backup.updates[stream]
    undo = _put_back(world, stream, backup, wanted)
    what = f"{stream}: the {what} of {since} updates before is restored"
    return Applied(what, stream, must if since else "run or be refused", undo, (stream,), must_undo=True)


@edit
def rebuilt(world: World) -> Applied:
    """Move everything that a stream and its readers have away."""
    stream = world.rng.choice(world.streams)
    world.rebuild(stream)
    return Applied(f"{stream}: everything is moved away", stream, "run")


@edit
def older_table(world: World) -> Applied | None:
    """Restore an older copy of a table alone."""
    return _older_part(world, "table", lambda kind: kind in world.streams, "be refused")


@edit
def older_checkpoint(world: World) -> Applied | None:
    """Restore an older copy of a checkpoint alone."""
    return _older_part(world, "checkpoint", lambda kind: kind == "checkpoint", "be refused")


@edit
def older_control(world: World) -> Applied | None:
    """Restore an older copy of a control folder alone."""
    return _older_part(world, "control folder", lambda kind: kind == "control", "run or be refused")


@edit
def missing_part(world: World) -> Applied | None:
    """Lose a folder of a stream."""
    ran = [name for name in world.streams if world.updates[name]]
    if not ran:
        return None
    stream = world.rng.choice(ran)
    kind = world.rng.choice(["control", "checkpoint", stream])
    path = world.paths(stream)[kind]
    aside = world.base / f"aside-{world.number('aside')}"
    path.rename(aside)

    def undo() -> None:
        shutil.rmtree(path, ignore_errors=True)
        aside.rename(path)

    what = f"{stream}: the {'table' if kind == stream else kind} is missing"
    return Applied(what, stream, "be refused", undo, (stream,), must_undo=True)


@edit
def older_backup(world: World) -> Applied | None:
    """Restore everything that a stream has, as it was in one backup: the stream reads the rest again."""
    chosen = _older(world)
    if chosen is None:
        return None
    stream, backup = chosen
    was, now = backup.definition, world.definition
    if was.folders != now.folders or any(
        getattr(was, part).get(stream) != getattr(now, part).get(stream)
        for part in ("sources", "sinks", "queries")
    ):
        return None
    state, updates = world.oracle.streams[stream], world.updates[stream]
    undo_folders = _put_back(world, stream, backup, lambda _: True)
    world.oracle.streams[stream] = deepcopy(backup.states[stream])
    world.updates[stream] = backup.updates[stream]
    world.forget_history(stream)

    def undo() -> None:
        undo_folders()
        world.oracle.streams[stream] = state
        world.updates[stream] = updates

    what = f"{stream}: everything of {updates - world.updates[stream]} updates before is restored"
    alone = (stream,) if world.rng.random() < 0.6 else None
    return Applied(what, stream, "run or be refused", undo, only=alone)
