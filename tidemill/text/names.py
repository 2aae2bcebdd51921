"""Names that are safe in a path, in SQL and as a Dagster key, or an error with the rule."""

import keyword
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from tidemill.errors import DefinitionError

# The job of a pipeline has its name, and Dagster refuses these names for jobs, beside Python's keywords.
_REFUSED_BY_DAGSTER = (
    "context conf config meta arg_dict dict input_arg_dict output_arg_dict "
    "int str float bool input output type"
)
# Asset checks of streams (`tidemill.checks`).
RESERVED_RULES = frozenset(
    {
        "checkpoint_sound",
        "watermark",
        "state_bounded",
        "exactly_once",
        "late_rows",
        "freshness",
        "backlog",
        "quarantine",
        "in_catalog",
    }
)
# Tidemill's own package, the first parts of the asset keys of external data, and what Dagster refuses.
RESERVED_PIPELINES = frozenset(
    {"streaming", "feed", "kafka", "files", "delta", "source", *_REFUSED_BY_DAGSTER.split(), *keyword.kwlist}
)
MAX_LENGTH = 80  # a checkpoint path holds two names, and some file systems stop at 255 bytes per name

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_RULE = re.compile(r"[A-Za-z0-9_]+")  # Dagster's rule for the names of asset checks
_FEED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # Kafka's legal topic characters
# Dagster's rules for owners and tags (is_valid_owner and normalize_tags(strict=True) of dagster 1.13).
_OWNER = re.compile(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,7}\b|team:.+", re.DOTALL)
_TAG_KEY = re.compile(r"([A-Za-z0-9_.-]{1,63}/|dagster/kind/)?[A-Za-z0-9_.-]{1,63}")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}")


MAIN_SINK = "main"
"""The name of the sink whose table has the stream's own name."""
QUARANTINE = "quarantine"
"""What the name of a sink would be whose table has the records and rows that the rules of a stream refuse."""


@dataclass(frozen=True, slots=True, order=True)
class StreamName:
    """The full name of a stream, `<pipeline>/<stream>`: its asset key, its folder, its selection."""

    pipeline: str
    stream: str

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.stream}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the name that a string such as `ads/clicks` stands for.

        Raises:
            DefinitionError: The string is not two valid names with a slash between them.
        """
        pipeline, slash, stream = text.partition("/")
        if not slash:
            raise DefinitionError(f"{text!r} is not of the form <pipeline>/<stream>.", code="name-invalid")
        return cls(valid_name(pipeline, field="pipeline"), valid_name(stream, field="stream"))


def valid_name(value: object, *, field: str) -> str:
    """Return the name of a pipeline or stream: lower case, digits and single underscores.

    Two underscores in a row are reserved for further tables of a stream, such as `<stream>__quarantine`.

    Raises:
        DefinitionError: With the kind of name, the value and the rule.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value) or len(value) > MAX_LENGTH:
        raise DefinitionError(
            f"{field} name {value!r} is not allowed: use lower-case letters, digits and single underscores, "
            f"start with a letter, at most {MAX_LENGTH} characters.",
            code="name-invalid",
        )
    return value


def valid_rule_name(value: object, *, field: str) -> str:
    """Return the name of a rule on rows, which becomes the name of a Dagster asset check.

    Raises:
        DefinitionError: With the kind of name, the value and the rule.
    """
    if not isinstance(value, str) or not _RULE.fullmatch(value) or len(value) > MAX_LENGTH:
        raise DefinitionError(
            f"{field} name {value!r} is not allowed: it must match [A-Za-z0-9_]+.", code="name-invalid"
        )
    return value


def valid_feed_name(value: object) -> str:
    """Return a feed's name, which becomes a folder or a Kafka topic.

    Raises:
        DefinitionError: With the value and the rule.
    """
    if not isinstance(value, str) or not _FEED.fullmatch(value) or len(value) > MAX_LENGTH:
        raise DefinitionError(
            f"feed name {value!r} is not allowed: use letters, digits, '.', '_' and '-', "
            f"start with a letter or a digit, at most {MAX_LENGTH} characters.",
            code="name-invalid",
        )
    return value


def valid_argument(value: object) -> str:
    """Return a source's key: the argument of the function and the source's name in the checkpoint.

    Raises:
        DefinitionError: With the value and the rule.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value) or keyword.iskeyword(value):
        raise DefinitionError(
            f"source key {value!r} is not allowed: it names an argument of the function and the source in "
            "the checkpoint, so use lower-case letters, digits and single underscores.",
            code="name-invalid",
        )
    return value


def valid_choice(value: object, allowed: Collection[str], *, field: str) -> None:
    """Refuse a value that is not one of those that are allowed.

    Raises:
        DefinitionError: With the field, the value and what is allowed.
    """
    if value not in allowed:
        raise DefinitionError(f"{field} is {value!r}; use one of {', '.join(allowed)}.")


def sql_identifier(column: str) -> str:
    """Return a column's name as an SQL identifier, whatever characters it has."""
    return "`" + column.replace("`", "``") + "`"


def valid_owner(value: object) -> str:
    """Return an owner, as Dagster accepts it: an e-mail address, or `team:` with a name.

    Raises:
        DefinitionError: With the value and the rule.
    """
    if not isinstance(value, str) or not _OWNER.fullmatch(value):
        raise DefinitionError(f"owner {value!r} is not allowed: use an e-mail address or 'team:<name>'.")
    return value


def valid_tag(key: object, value: object) -> tuple[str, str]:
    """Return a tag's key and value, as Dagster accepts them.

    Raises:
        DefinitionError: With the key or the value, and the rule.
    """
    if not isinstance(key, str) or not _TAG_KEY.fullmatch(key):
        raise DefinitionError(
            f"tag {key!r} is not allowed: use letters, digits, '_', '-' and '.', at most 63 characters, "
            "optionally after a namespace of the same form and a slash."
        )
    if not isinstance(value, str) or not _TAG_VALUE.fullmatch(value):
        raise DefinitionError(
            f"tag {key!r} has the value {value!r}, which is not allowed: use a string of letters, digits, "
            "'_', '-' and '.', at most 63 characters."
        )
    return key, value
