"""A SQL text as the function of a stream. Needs no Spark until it is called."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.definitions.source import Source
from tidemill.errors import DefinitionError, TerminalError
from tidemill.text.sql_parsing import tables_of, unpinned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*|/\*(?!\+).*?\*/)"
    r"|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|\w+|\S",
    re.DOTALL,
)
_NAME_TOKENS = 5  # catalog . schema . table
_LINE = re.compile(r"\bline (\d+),? pos \d+")
# The text is right, and no stream can do it: run/spark/refusals.py has the way around.
_OF_STREAMS = "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY"
_SQL_STATE = re.compile(r"\s*SQLSTATE: .*", re.DOTALL)


@dataclass(frozen=True)
class SqlFunction:
    """A SELECT over the sources of a stream, as a function of their DataFrames.

    Attributes:
        text: The text.
        arguments: The tables that it reads, which are the names of the sources.
        description: A description of the stream.
        file: The file of the text, or the one that declares the stream with it.
        line: The line of the declaration; 1 for a file of SQL of its own.
        is_file: Whether the text has a file of its own.
    """

    text: str
    arguments: tuple[str, ...]
    description: str
    file: str
    line: int
    is_file: bool

    def reading(self, source: object) -> "SqlFunction":
        """Return the same text with the names of sources in place of those that their tables have in a catalog.

        Args:
            source: One source, or sources by name.

        Raises:
            DefinitionError: No source is a table that the text reads by its name in a catalog.
        """
        qualified = [name for name in self.arguments if "." in name]
        if not qualified:
            return self
        known = _keys(source)
        if missing := next((name for name in qualified if name not in known), None):
            raise DefinitionError(unpinned("its SQL text", missing), code="sql-invalid")
        names = dict.fromkeys(known.get(name, name) for name in self.arguments)
        return replace(self, text=_renamed(self.text, known), arguments=tuple(names))

    @property
    def code(self) -> str:
        """The text without comments and layout."""
        return " ".join(token[0] for token in _TOKEN.finditer(self.text) if token["comment"] is None)

    def __call__(self, *inputs: "DataFrame") -> "DataFrame":
        """Return the rows of the text over these inputs.

        Raises:
            TerminalError: Spark refuses the text.
        """
        from pyspark.errors import AnalysisException

        # The inputs are relations of this text only, so streams that use the same names never see each other's rows.
        # On the first line, so that Spark's numbers of lines are those of the text.
        named: dict[str, Any] = {f"source_{at}": rows for at, rows in enumerate(inputs)}
        relations = (f"{name} AS (TABLE {{{key}}})" for name, key in zip(self.arguments, named, strict=True))
        escaped = self.text.replace("{", "{{").replace("}", "}}")
        try:
            return inputs[0].sparkSession.sql(f"WITH {', '.join(relations)} FROM ({escaped}\n)", **named)
        except AnalysisException as error:  # a syntax error is one, too
            if error.getCondition() == _OF_STREAMS:
                raise
            raise self._refusal(str(error), error.getCondition()) from None

    def _refusal(self, message: str, error_class: str | None) -> TerminalError:
        line = _LINE.search(message)
        reason = " ".join(_SQL_STATE.sub("", message).split()).partition("] ")[2] or message
        return TerminalError(
            f"line {line[1] if line else '?'} of its SQL text ({self._location(line)}): {reason.rstrip('.')}.",
            fix="correct the text.",
            error_class=error_class,
            code="sql-invalid",
        )

    def _location(self, line: re.Match[str] | None) -> str:
        name = Path(self.file).name
        return f"{name}:{line[1] if line and self.is_file else self.line}"


def _keys(source: object) -> dict[str, str]:
    """Return the names of the sources that are tables of a catalog, by the names that those have there."""
    if isinstance(source, Source):
        table = source.catalog_table
        return {} if table is None else {str(table).lower(): table.table.lower()}
    sources = source.items() if isinstance(source, Mapping) else ()
    return {
        str(one.catalog_table).lower(): key
        for key, one in sources
        if isinstance(one, Source) and one.catalog_table is not None
    }


def _renamed(text: str, keys: Mapping[str, str]) -> str:
    """Return SQL with the keys in place of the names of tables, also where they qualify a column."""
    tokens = [token for token in _TOKEN.finditer(text) if token["comment"] is None]
    renamed, end, at = "", 0, 0
    while at < len(tokens):
        name = "".join(token[0].strip("`") for token in tokens[at : at + _NAME_TOKENS]).lower()
        if name in keys and (at == 0 or tokens[at - 1][0] != "."):
            renamed += text[end : tokens[at].start()] + keys[name]
            at += _NAME_TOKENS
            end = tokens[at - 1].end()
        else:
            at += 1
    return renamed + text[end:]


def sql_function(text: str | Path, description: str) -> SqlFunction:
    """Return the function of a SQL text.

    Args:
        text: The text; or the path of a file that ends with `.sql`, relative to the file that declares the stream.
        description: A description of the stream.

    Raises:
        DefinitionError: The file cannot be read, or the text is not one SELECT.
    """
    file, line = _caller()
    is_file = isinstance(text, Path) or (isinstance(text, str) and text.strip().endswith(".sql"))
    if is_file:
        path = Path(file).parent / str(text).strip()
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(
                f"its SQL text is the file {path}, which cannot be read: {error}.", code="sql-invalid"
            ) from None
        file, line = str(path), 1
    arguments = tables_of(text, field="its SQL text")
    return SqlFunction(str(text), arguments, description, file, line, is_file)


def _caller() -> tuple[str, int]:
    """Return the file and the line of the code that declares a stream."""
    frame = sys._getframe()  # noqa: SLF001 - `inspect.stack` reads the source files of all frames
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("tidemill.definitions."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
