"""Find calls on a lake's files that only a file system has, outside the room that owns them.

`make lint` runs it. The files of a lake are reached by a `Store` (tidemill/storage), so that another store needs no
other code. The type of an object is unknown here: a method of such a name counts, whatever it is called on.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "tidemill"

# Rooms whose files are on this machine by nature, or whose files are no lake's.
LOCAL = (
    "storage/",
    "engines/",  # jars, processes, the warm server
    "cli/machine/",  # demo, debug, init
    "cli/project/",
    "connectors/files/",  # the files of sources have their own seam
    "connectors/kafka/",
    "target/",  # tidemill.toml
    "testing/",
    "cache.py",
    "text/sql_parsing.py",  # its cache
    "orchestration/assets/translator.py",  # files of code
    "run/pause_points.py",
    "checkpoint/",  # the one reader and the one writer of Spark's files
    "operations/generations/adopt.py",  # moves a table into the lake
)

TOUCHING = frozenset(
    {
        *("is_dir", "is_file", "is_symlink", "iterdir", "glob", "rglob", "stat", "lstat", "mkdir", "rmdir"),
        *("unlink", "rename", "touch", "chmod", "hardlink_to", "symlink_to", "readlink"),
        *("read_text", "read_bytes", "write_text", "write_bytes"),
    }
)
# Calls of `os` that touch no file.
HARMLESS = frozenset({"_exit", "fspath", "getpid"})


def local_calls(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each call in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            yield from ((node.lineno, name) for name in names if name in {"shutil", "tempfile"})
        elif isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id="open"):
                    yield node.lineno, "open"
                case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in HARMLESS:
                    yield node.lineno, f"os.{name}"
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=name):
                    yield node.lineno, f"os.path.{name}"
                case ast.Attribute(value=ast.Call(args=[ast.Constant(value=str(path_of))])) if (
                    path_of[:6] == "/proc/"
                ):
                    continue
                case ast.Attribute(attr=name) if name in TOUCHING:
                    yield node.lineno, name


def main() -> int:
    """Print each call and return 1 if there is one."""
    faults = 0
    for path in sorted(LIBRARY.rglob("*.py")):
        room = path.relative_to(LIBRARY).as_posix()
        if not room.startswith(LOCAL):
            for line, name in local_calls(path):
                print(f"tidemill/{room}:{line}: {name}")
                faults += 1
    if faults:
        print("A lake's files are reached by its Store (tidemill/storage/store.py).")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
