"""Write docs/reference.md from the signatures and docstrings of the public names: `make reference`.

Nothing is imported: the source files are parsed.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference.md"
INTRO = """# Reference

Every public name, with its arguments and defaults. `make reference` writes this page from the docstrings.
[Concepts](concepts.md) explains the words, the [tutorial](tutorial.md) shows the names at work, and
[the command](command.md) and [targets](targets.md) cover the command line and `tidemill.toml`.
"""


@dataclass(frozen=True)
class Entry:
    """A public name and the members of it that the page describes.

    Attributes:
        name: The name of a class or a function.
        members: The methods and properties to describe.
        created: Whether users call the class; the page lists the arguments of such a class, and the attributes
            of any other.
    """

    name: str
    members: tuple[str, ...] = ()
    created: bool = True


@dataclass(frozen=True)
class Row:
    """One argument or attribute, as the cells of a table."""

    name: str
    type: str
    default: str
    text: str


INTERNAL = {"self", "watermark"}  # a watermark is set through `with_watermark`
SECTIONS: dict[str, dict[str, tuple[Entry, ...]]] = {
    "Pipelines and streams": {
        "tidemill": (
            Entry("Pipeline", ("stream",)),
            Entry("Stream", ("with_watermark", "limited", "changes", "static"), created=False),
            Entry("BackfillBy"),
            Entry("Expect"),
            Entry("QueryOptions"),
            Entry("RunWhen"),
            Entry("Checks"),
            Entry("StateBounds"),
        ),
    },
    "Sources": {
        "tidemill": (
            Entry("Feed"),
            Entry("Json"),
            Entry("Csv"),
            Entry("Raw"),
            Entry("KafkaSource", ("with_watermark",)),
            Entry("FileSource", ("with_watermark", "static")),
            Entry("DeltaSource", ("with_watermark", "static")),
            Entry("JdbcSource"),
            Entry("RateSource", ("with_watermark",)),
            Entry("SparkSource", ("with_watermark",)),
        ),
    },
    "Sinks": {
        "tidemill": (
            Entry("DeltaAppend"),
            Entry("DeltaMerge"),
            Entry("DeltaOverwrite"),
            Entry("FileSink", ("published",)),
            Entry("JdbcSink"),
            Entry("KafkaSink"),
            Entry("ForeachSink"),
            Entry("BatchSink"),
            Entry("ConsoleSink"),
            Entry("MemorySink", ("rows",)),
            Entry("BatchIdentity", created=False),
        ),
    },
    "Targets": {
        "tidemill.target.target": (
            Entry("Target", ("binding", "cluster", "database")),
            Entry("KafkaCluster"),
            Entry("FolderBinding"),
            Entry("TopicBinding"),
        ),
        "tidemill.target.postgres": (Entry("PostgresDatabase"),),
    },
    "Changing code": {
        "tidemill.operations": (
            Entry("code_changes"),
            Entry("CodeChange", ("is_fine",), created=False),
            Entry("accept_change"),
        ),
    },
    "Testing": {
        "tidemill.testing": (
            Entry(
                "Scratch",
                (
                    "target",
                    "run",
                    "run_all",
                    "start",
                    "arrive",
                    "drop_file",
                    "rows",
                    "quarantined",
                    "table_rows",
                    "checkpoint",
                ),
                created=False,
            ),
            Entry("multiset"),
        ),
    },
    "Dagster": {
        "tidemill.orchestration": (
            Entry("build_definitions"),
            Entry("streaming_assets"),
            Entry("pipeline_job"),
            Entry("streaming_resources"),
            Entry("StreamsResource", ("run",)),
            Entry("StreamTranslator", ("get_asset_spec",)),
            Entry("StreamData", created=False),
            Entry("external_assets"),
            Entry("stream_specs"),
            Entry("ExternalData", created=False),
            Entry("SparkResource", ("spark_session", "resolved_target", "engine", "read")),
        ),
    },
}


def page() -> str:
    """Return the text of docs/reference.md."""
    lines = [INTRO]
    for title, modules in SECTIONS.items():
        lines.append(f"## {title}\n")
        for module, entries in modules.items():
            package = griffe.load(module, search_paths=[str(ROOT)], docstring_parser="google")
            for entry in entries:
                lines += _entry(package, module, entry)
    return "\n".join(lines).rstrip() + "\n"


def _entry(package: griffe.Module, module: str, entry: Entry) -> list[str]:
    named = package[entry.name]
    public = named.final_target if isinstance(named, griffe.Alias) else named
    lines = [f"### `{entry.name}`\n", f"```python\nfrom {module} import {entry.name}\n```\n"]
    if isinstance(public, griffe.Function):
        return lines + _documented(public, _argument_rows(public, _described(public)))
    if entry.created and "__init__" in public.all_members:
        rows = _argument_rows(public.all_members["__init__"], _described(public))
    else:
        rows = _attribute_rows(public, with_defaults=entry.created)
    rows = [
        row for row in rows if "init=False" not in str(getattr(public.all_members.get(row.name), "value", ""))
    ]
    lines += _documented(public, rows)
    for name in entry.members:
        member = public.all_members[name]
        member = member.final_target if isinstance(member, griffe.Alias) else member
        is_function = isinstance(member, griffe.Function)
        lines.append(f"#### `{entry.name}.{name}`\n")
        lines += _documented(member, _argument_rows(member, _described(member)) if is_function else [])
    return lines


def _documented(public: griffe.Object, rows: list[Row]) -> list[str]:
    """Return the docstring of an object, with its arguments or attributes after the text."""
    if public.docstring is None:
        raise SystemExit(f"{public.path} is public and has no docstring.")
    lines, after = [], []
    for section in public.docstring.parsed:
        match section.kind:
            case griffe.DocstringSectionKind.text:
                lines.append(f"{section.value}\n")
            case griffe.DocstringSectionKind.returns:
                after.append(f"Returns: {' '.join(part.description for part in section.value)}\n")
            case griffe.DocstringSectionKind.raises:
                after += [
                    f"Raises `{part.annotation}`: {_one_line(part.description)}\n" for part in section.value
                ]
    if isinstance(public, griffe.Attribute):
        lines.append(f"Property, {_type(public, public)}.\n")
    return [*lines, *_table(rows), *after]


def _table(rows: list[Row]) -> list[str]:
    """Return a table of arguments or attributes; a list where none of them is described."""
    if not any(row.text for row in rows):
        listed = ", ".join(f"`{row.name}` ({row.type}, {row.default})" for row in rows)
        return [f"Arguments: {listed}.\n"] if rows else []
    with_defaults = any(row.default for row in rows)
    head = ["name", "type", *(["default"] if with_defaults else []), ""]
    lines = [head, ["---"] * len(head)]
    lines += [
        [f"`{row.name}`", row.type, *([row.default] if with_defaults else []), row.text] for row in rows
    ]
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return [*(f"| {' | '.join(line)} |".replace("  |", " |") for line in escaped), ""]


def _attribute_rows(public: griffe.Class, *, with_defaults: bool) -> list[Row]:
    rows = []
    for name, text in _described(public).items():
        attribute = public.all_members[name]
        default = _default(attribute.value, public) if with_defaults else ""
        rows.append(Row(name, _type(attribute, public), default, text))
    return rows


def _argument_rows(function: griffe.Function, described: dict[str, str]) -> list[Row]:
    """Return a row per argument; an argument may lack a description only when all of them do."""
    rows = []
    for argument in function.parameters:
        name = argument.name
        if name in INTERNAL or name.startswith("_"):
            continue
        if described and name not in described:
            raise SystemExit(f"{function.path}: the argument {name!r} has no description.")
        default = "required" if argument.required else _default(argument.default, function)
        if argument.kind is griffe.ParameterKind.var_positional:
            name, default = f"*{name}", "any number"
        rows.append(Row(name, _type(argument, function), default, described.get(argument.name, "")))
    return rows


def _described(public: griffe.Object) -> dict[str, str]:
    """Return the described arguments or attributes, those of base classes included."""
    described: dict[str, str] = {}
    bases = reversed(public.mro()) if isinstance(public, griffe.Class) else ()
    for owner in (*bases, public):
        for section in owner.docstring.parsed if owner.docstring else ():
            if section.kind in (
                griffe.DocstringSectionKind.attributes,
                griffe.DocstringSectionKind.parameters,
            ):
                described |= {part.name: _one_line(part.description) for part in section.value}
    return described


def _type(part: griffe.Parameter | griffe.Object, owner: griffe.Object) -> str:
    """Return a type for a cell of a table; the name of a `Literal` is replaced by its values."""
    written = str(part.annotation).replace('"', "").replace("'", "")
    alias = _assigned(owner, written).replace("'", '"')
    return f"`{(alias if alias.startswith('Literal[') else written)}`"


def _default(value: object, owner: griffe.Object) -> str:
    """Return a default for a cell of a table; the name of a constant is replaced by its value."""
    written = str(value)
    if field := re.match(r"Field\(default(_factory)?=(\w+)", written):
        written = f"{field[2]}()" if field[1] else field[2]
    written = {"dict()": "{}"}.get(written, _assigned(owner, written) or written)
    return f"`{written}`".replace("'", '"')


def _assigned(owner: griffe.Object, name: str) -> str:
    """Return what is assigned to a name where an object, or a base class of it, is defined; empty if nothing is."""
    owners = owner.parent.mro() if isinstance(owner.parent, griffe.Class) else ()
    for module in (owner.module, *(base.module for base in owners)):
        with suppress(KeyError, griffe.GriffeError):
            named = owner.modules_collection[module.resolve(name)]
            target = named.final_target if isinstance(named, griffe.Alias) else named
            if isinstance(target, griffe.Attribute):
                return str(target.value)
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
