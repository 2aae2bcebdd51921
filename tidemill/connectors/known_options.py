"""The options of Spark's sources by name: Spark ignores a misspelled one without a warning.

Sources: Spark guide "Data Sources" (generic, JSON, CSV, text, Parquet and ORC files), "Input Sources" of
Structured Streaming, the Kafka integration guide, and Delta's "Table streaming reads".
"""

from collections.abc import Iterable, Mapping

from tidemill.errors import DefinitionError
from tidemill.target.target import did_you_mean


def _names(options: str) -> frozenset[str]:
    return frozenset(option.lower() for option in options.split())


_TEXT_VALUES = _names(
    "timeZone dateFormat timestampFormat timestampNTZFormat enableDateTimeParsingFallback locale lineSep encoding "
    "charset mode columnNameOfCorruptRecord multiLine samplingRatio preferDate singleVariantColumn"
)
FORMAT_OPTIONS: Mapping[str, frozenset[str]] = {
    "json": _TEXT_VALUES
    | _names(
        "primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes "
        "allowNumericLeadingZeros allowBackslashEscapingAnyCharacter allowUnquotedControlChars "
        "allowNonNumericNumbers dropFieldIfAllNull ignoreNullFields writeNonAsciiCharacterAsCodePoint "
        "useUnsafeRow maxNestingDepth maxNumLen maxStringLen"
    ),
    "csv": _TEXT_VALUES
    | _names(
        "sep delimiter quote escape comment header inferSchema enforceSchema ignoreLeadingWhiteSpace "
        "ignoreTrailingWhiteSpace nullValue nanValue positiveInf negativeInf maxColumns maxCharsPerColumn "
        "unescapedQuoteHandling emptyValue charToEscapeQuoteEscaping columnPruning"
    ),
    "text": _names("wholetext lineSep encoding"),
    "parquet": _names("datetimeRebaseMode int96RebaseMode mergeSchema"),
    "orc": _names("mergeSchema"),
}
FILE_OPTIONS = _names(
    "recursiveFileLookup pathGlobFilter modifiedBefore modifiedAfter ignoreCorruptFiles ignoreMissingFiles basePath "
    "compression maxFilesPerTrigger maxBytesPerTrigger latestFirst maxFileAge maxCachedFiles fileNameOnly "
    "cleanSource sourceArchiveDir discardCachedInputRatio"
)
KAFKA_OPTIONS = _names(
    "startingTimestamp startingOffsetsByTimestamp startingOffsetsByTimestampStrategy failOnDataLoss "
    "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs maxTriggerDelay minPartitions "
    "maxRecordsPerPartition maxOffsetsPerTrigger groupIdPrefix includeHeaders"
)
DELTA_OPTIONS = _names(
    "maxFilesPerTrigger maxBytesPerTrigger startingVersion startingTimestamp endingVersion endingTimestamp "
    "ignoreDeletes ignoreChanges skipChangeCommits excludeRegex failOnDataLoss schemaTrackingLocation "
    "readChangeFeed allowSourceColumnDrop allowSourceColumnRename allowSourceColumnTypeChange"
)


_LIMITS = {
    "maxfilespertrigger": "max_files_per_batch=",
    "maxbytespertrigger": "max_bytes_per_batch=",
    "maxoffsetspertrigger": "max_records_per_batch=",
}
"""Options that are arguments of our sources, each with the argument."""


def option_of(options: Mapping[str, str], name: str) -> str:
    """Return an option in lower case, by its name in lower case; empty where it is not set."""
    return next((value.lower() for key, value in options.items() if key.lower() == name), "")


def known_options(options: Mapping[str, str], known: Iterable[str], *, field: str) -> None:
    """Refuse options that a source does not have, and limits, which are arguments.

    Args:
        options: Options as declared; their names are case-insensitive.
        known: Lower-case names.
        field: The source, named in the error.

    Raises:
        DefinitionError: With the first such option, and the name or argument to use.
    """
    names = set(known)
    for option, value in options.items():
        if option.lower() not in names:
            hint = did_you_mean(option.lower(), names)
            raise DefinitionError(
                f"{field}: options has {option!r}, which Spark does not know.{hint}", code="option-not-known"
            )
        if argument := _LIMITS.get(option.lower()):
            raise DefinitionError(
                f"{field}: {option} is an argument here; use {argument}.", code="option-is-argument"
            )
        if not isinstance(value, str):
            raise DefinitionError(f"{field}: option {option!r} is {value!r}: write it as a string.")
