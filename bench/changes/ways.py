"""The way out of a refusal: the commands that its message offers, a rebuild, or to undo the edit."""

import re
import shlex
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from bench.changes.oracle import State
from bench.changes.streams import declare
from bench.changes.world import DifferenceError, World
from tidemill.errors import TidemillError
from tidemill.operations.edits.accept import accept_new_source, accept_version
from tidemill.operations.edits.new_sink import accept_new_sink
from tidemill.operations.edits.rebind import rebind
from tidemill.operations.edits.rename_source import rename_source
from tidemill.text.names import StreamName

_COMMAND = re.compile(r"tidemill ((?:accept|rename-source|rebind)(?: [^\s.;,]+)+)")
_REBUILD = re.compile(r"rebuild|new checkpoint|folders away")


def ways_out(world: World, stream: str, error: TidemillError) -> dict[str, Callable[[], None]]:
    """Return what the message of a refusal offers, by name."""
    ways: dict[str, Callable[[], None]] = {}
    for command in _COMMAND.findall(error.fix):
        ways[command] = lambda command=command: execute(world, command)
    if _REBUILD.search(error.fix):
        ways[f"rebuild {stream}"] = lambda: world.rebuild(stream)
    return ways


def execute(world: World, command: str) -> None:
    """Execute a command as the user would, and let the oracle follow.

    Raises:
        DifferenceError: The command is refused, or another one than those that the campaign knows.
    """
    verb, name, *arguments = shlex.split(command)
    stream = name.split("/")[1]
    declared = declare(world.definition, world.landing)[stream]
    state = world.oracle.streams[stream]
    before = world.contents(stream)
    try:
        match verb, arguments:
            case "rename-source", [old, new]:
                rename_source(declared, world.target, old, new, dry_run=True)
                unchanged(world, stream, before, command)
                rename_source(declared, world.target, old, new)
                if old in state.read:
                    state.read[new] = state.read.pop(old)
                state.accepted[new] = state.accepted.pop(old, set())
            case "accept", ["--new-source", new]:
                accept_new_source(declared, world.target, new)
                forget(state, new)
            case "accept", ["--new-sink", sink, *fill]:
                engine = world.engine if fill else None
                accept_new_sink(declared, world.target, sink, engine=engine, dry_run=True)
                unchanged(world, stream, before, command)
                accept_new_sink(declared, world.target, sink, engine=engine)
                state.further[sink] = Counter(state.rows) if fill else Counter()
            case "accept", ["--version", version]:
                upstream, number = version.split("@")
                accept_version(declared, world.target, StreamName.parse(upstream), int(number))
                for argument, what in world.definition.sources[stream].items():
                    if what == f"rows {upstream.split('/')[1]}":
                        state.accepted.setdefault(argument, set()).add(int(number))
            case "rebind", [source]:
                _rebind(world, stream, source)
            case _:
                raise DifferenceError(f"{command} is not a command that the campaign knows")
    except TidemillError as error:
        raise DifferenceError(f"the offered command is refused: {command}: {error}") from error


def unchanged(world: World, stream: str, before: dict[str, str], what: str) -> None:
    """Compare the files of a stream with those before.

    Raises:
        DifferenceError: They have changed.
    """
    if world.contents(stream) != before:
        raise DifferenceError(f"{what} changed {stream}")


def forget(state: State, argument: str) -> None:
    """Let a stream read a source from its beginning."""
    state.read.pop(argument, None)
    state.accepted.pop(argument, None)


def _rebind(world: World, stream: str, source: str) -> None:
    declared = declare(world.definition, world.landing)[stream]
    from_beginning = world.rng.random() < 0.3
    if not from_beginning:
        with suppress(TidemillError):  # the message then offers --from-beginning
            rebind(declared, world.target, source)
            return
    rebind(declared, world.target, source, from_beginning=True)
    forget(world.oracle.streams[stream], source)
