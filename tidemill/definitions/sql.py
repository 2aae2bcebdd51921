"""A SQL text as the function of a stream. Needs no Spark until it is called."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import DefinitionError, TerminalError
from tidemill.text.sql_parsing import tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*|/\*(?!\+).*?\*/)"
    r"|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|\w+|\S",
    re.DOTALL,
)
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
