"""How a feed distinguishes records that pass from refused ones, as plain data that a commit can carry.

The main table of a feed may commit a batch before the quarantine does. After a kill between the two, the refused
records are found again by the schema and the rules that the table's rows passed, whatever the code is by then.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelines.streaming.sources.parser import Parser

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipelines.streaming.sources import Feed
    from pipelines.streaming.stream import Stream

Judgement = Mapping[str, Any]
"""The parser and the rules of a feed, and the confs that the declaration sets, as JSON."""

# Spark takes the time of a batch for all other functions of the current time, also when it repeats the batch.
_TIME_OF_DAY = re.compile(r"\bcurrent_time\b", re.IGNORECASE)


def judgement_of(stream: "Stream", feed: "Feed") -> Judgement:
    """Return what the judgement of a stream's records depends on."""
    return {
        "format": feed.value.format,
        "schema": feed.value.schema,
        "options": dict(feed.value.options),
        "header": feed.value.header,
        "rules": dict(feed.quarantine),
        "confs": dict(stream.query.options),
    }


def as_judged(feed: "Feed", judgement: Judgement) -> "Feed":
    """Return a feed with the parser and the rules of a judgement."""
    parser = Parser(judgement["format"], judgement["schema"], judgement["options"], judgement["header"])
    return replace(feed, value=parser, quarantine=judgement["rules"])


def is_repeatable(feed: "Feed", records: "DataFrame") -> bool:
    """Return whether the rules refuse the same records each time that they are evaluated.

    Spark answers: it takes no nondeterministic expression as the argument of an aggregate.

    Args:
        feed: The feed.
        records: Its parsed records.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    rules = list(feed.quarantine.values())
    if any(map(_TIME_OF_DAY.search, rules)):
        return False
    try:
        _ = records.agg(F.count(F.lit(1)), *(F.count(F.expr(rule)) for rule in rules)).schema
    except AnalysisException:
        return False
    return True
