"""Find calls on a lake's files that only a file system has, outside the room that owns them.

`make lint` runs it. The files of a lake are reached by a `Store` (tidemill/storage), so that another store needs no
other code. The type of an object is unknown here: a method of such a name counts, whatever it is called on. A name that
strings, tables or stores have as well counts on what is seen to be a `Path`.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "tidemill"

# Rooms whose files are on this machine by nature, or whose files are no lake's; of a module, perhaps one call only.
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
    "run/pause_points.py",
    "cli/checkpoint/refs.py:exists",  # whether an argument is a path of this machine or a selection
    "orchestration/assets/translator.py",  # files of code
    "definitions/sql.py:read_text",  # a file of code
    "records/lease.py:exists",  # the file of the warm server of this machine
    # The table of a query of plain Spark is on this machine and is moved; its checkpoint is read by a store.
    "operations/generations/adopt.py:mkdir",
    "operations/generations/adopt.py:shutil",
)

MODULES = frozenset({"glob", "os.path", "shutil", "tempfile"})
TOUCHING = frozenset(
    {
        *("is_dir", "is_file", "is_symlink", "iterdir", "glob", "rglob", "stat", "lstat", "mkdir", "rmdir"),
        *("unlink", "rename", "touch", "chmod", "hardlink_to", "symlink_to", "readlink", "samefile"),
        *("read_text", "read_bytes", "write_text", "write_bytes"),
    }
)
TOUCHING_OF_PATHS = frozenset({"exists", "open", "replace", "resolve", "walk"})
PURE_OF_PATHS = frozenset({"absolute", "expanduser", "joinpath", "parent", "with_name", "with_suffix"})
# Calls of `os` that touch no file.
HARMLESS = frozenset({"_exit", "fspath", "getpid", "strerror"})


def names_of_paths(tree: ast.AST) -> frozenset[str]:
    """Return the names that a module annotates as a `Path` or assigns one; those of fields begin with a dot."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as kind) if _means_path(kind):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind) if _means_path(kind):
                names |= {name, f".{name}"}
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ) if is_path(value, frozenset()):
                names.add(name)
    return frozenset(names)


def _means_path(annotation: ast.expr) -> bool:
    return "Path" in ast.unparse(annotation).replace("PathLike", "").strip("'\"").split(" | ")


def is_path(value: ast.expr, names: frozenset[str]) -> bool:
    """Return whether an expression is seen to be a `Path`: `Path(a)`, `Path(a).parent / "b"`, or a name of one."""
    match value:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr=name) if f".{name}" in names:
            return True
        case ast.Call(func=ast.Name(id="Path")):
            return True
        case ast.Call(func=ast.Attribute(value=of, attr=name)) | ast.Attribute(value=of, attr=name):
            return name in PURE_OF_PATHS | TOUCHING_OF_PATHS and is_path(of, names)
        case ast.NamedExpr(value=of) | ast.BinOp(left=of, op=ast.Div()):
            return is_path(of, names)
    return False


def local_calls(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each call in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    paths = names_of_paths(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from ((node.lineno, f"os.{one.name}") for one in node.names if one.name not in HARMLESS)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            yield from ((node.lineno, name) for name in names if name in MODULES)
        elif isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id="open") | ast.Attribute(value=ast.Name(id="io"), attr="open"):
                    yield node.lineno, "open"
                case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in HARMLESS:
                    yield node.lineno, f"os.{name}"
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=name):
                    yield node.lineno, f"os.path.{name}"
                case ast.Attribute(value=ast.Call(args=[ast.Constant(value=str(path_of))])) if (
                    path_of[:6] == "/proc/"
                ):
                    continue
                case ast.Attribute(value=of, attr=name) if name in TOUCHING or (
                    name in TOUCHING_OF_PATHS and is_path(of, paths)
                ):
                    yield node.lineno, name


def main() -> int:
    """Print each call and return 1 if there is one."""
    faults = 0
    for path in sorted(LIBRARY.rglob("*.py")):
        room = path.relative_to(LIBRARY).as_posix()
        for line, name in local_calls(path):
            if not f"{room}:{name}".startswith(LOCAL):
                print(f"tidemill/{room}:{line}: {name}")
                faults += 1
    if faults:
        print("A lake's files are reached by its Store (tidemill/storage/store.py).")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
