"""The options of Spark's sources and of its writers of files by name: Spark ignores a misspelled one without a warning.

Sources: Spark guide "Data Sources" (generic, JSON, CSV, XML, text, Parquet, ORC, Avro and binary files), "Input
Sources" of Structured Streaming, the Kafka integration guide, and Delta's "Table streaming reads".
"""

import re
from collections.abc import Iterable, Mapping

from tidemill.errors import DefinitionError
from tidemill.target.target import did_you_mean

FILE_AGE = re.compile(r"(\d+)(us|ms|s|m|min|h|d)?")
"""A length of time as Spark writes it in `maxFileAge`; without a unit, in milliseconds."""
_ANY = re.compile(r".*", re.DOTALL)


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
    "xml": _TEXT_VALUES
    | _names(
        "rowTag excludeAttribute treatEmptyValuesAsNulls attributePrefix valueTag ignoreSurroundingSpaces "
        "rowValidationXSDPath ignoreNamespace wildcardColName nullValue inferSchema"
    ),
    "binaryFile": frozenset(),
    "text": _names("wholetext lineSep encoding"),
    "parquet": _names("datetimeRebaseMode int96RebaseMode mergeSchema"),
    "orc": _names("mergeSchema"),
    "avro": _names(
        "avroSchema avroSchemaUrl positionalFieldMatching datetimeRebaseMode enableStableIdentifiersForUnionType "
        "stableIdentifierPrefixForUnionType recursiveFieldMaxDepth"
    ),
}
STREAMED_FILE_OPTIONS = _names(
    "maxFilesPerTrigger maxBytesPerTrigger latestFirst maxFileAge maxCachedFiles fileNameOnly cleanSource "
    "sourceArchiveDir discardCachedInputRatio"
)
FILE_OPTIONS = STREAMED_FILE_OPTIONS | _names(
    "recursiveFileLookup pathGlobFilter modifiedBefore modifiedAfter ignoreCorruptFiles ignoreMissingFiles basePath "
    "compression"
)
_WRITTEN = _names("compression maxRecordsPerFile")
_WRITTEN_TEXT = _WRITTEN | _names("encoding lineSep")
_WRITTEN_VALUES = _WRITTEN_TEXT | _names("dateFormat timestampFormat timestampNTZFormat timeZone locale")
WRITER_OPTIONS: Mapping[str, frozenset[str]] = {
    "parquet": _WRITTEN,
    "orc": _WRITTEN,
    "json": _WRITTEN_VALUES | _names("ignoreNullFields writeNonAsciiCharacterAsCodePoint"),
    "csv": _WRITTEN_VALUES
    | _names(
        "sep delimiter quote quoteAll escape escapeQuotes charToEscapeQuoteEscaping header nullValue emptyValue "
        "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace"
    ),
    "text": _WRITTEN_TEXT,
    "avro": _WRITTEN | _names("avroSchema avroSchemaUrl recordName recordNamespace positionalFieldMatching"),
}
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


_VALUES: Mapping[str, tuple[str, ...]] = {
    "mode": ("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
    "cleansource": ("archive", "delete", "off"),
    "startingoffsetsbytimestampstrategy": ("error", "latest"),
    "datetimerebasemode": ("EXCEPTION", "CORRECTED", "LEGACY"),
    "int96rebasemode": ("EXCEPTION", "CORRECTED", "LEGACY"),
    "unescapedquotehandling": (
        "STOP_AT_CLOSING_QUOTE",
        "BACK_TO_DELIMITER",
        "STOP_AT_DELIMITER",
        "SKIP_VALUE",
        "RAISE_ERROR",
    ),
    **dict.fromkeys(
        _names(
            "latestFirst fileNameOnly recursiveFileLookup ignoreCorruptFiles ignoreMissingFiles failOnDataLoss "
            "ignoreDeletes ignoreChanges skipChangeCommits multiLine wholetext mergeSchema inferSchema enforceSchema "
            "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace preferDate enableDateTimeParsingFallback "
            "primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes "
            "allowNumericLeadingZeros allowBackslashEscapingAnyCharacter allowUnquotedControlChars "
            "allowNonNumericNumbers dropFieldIfAllNull columnPruning header excludeAttribute treatEmptyValuesAsNulls "
            "ignoreSurroundingSpaces ignoreNamespace ignoreNullFields quoteAll escapeQuotes "
            "writeNonAsciiCharacterAsCodePoint positionalFieldMatching enableStableIdentifiersForUnionType"
        ),
        ("true", "false"),
    ),
}
"""The values of options that have only a few, in any case."""
_FORMS = {
    **dict.fromkeys(
        _names(
            "minPartitions maxRecordsPerPartition maxCachedFiles kafkaConsumer.pollTimeoutMs fetchOffset.numRetries "
            "fetchOffset.retryIntervalMs maxColumns maxRecordsPerFile"
        ),
        (re.compile(r"\d+"), "a whole number"),
    ),
    "maxfileage": (FILE_AGE, "a number with a unit: us, ms, s, m, h or d"),
}
"""What the values of other options look like."""
_OF_BATCHES = _names("modifiedBefore modifiedAfter endingVersion endingTimestamp")
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
    """Refuse options that Spark does not know, limits, which are arguments, and values that Spark refuses.

    Args:
        options: Options as declared; their names are case-insensitive.
        known: Lower-case names.
        field: The source or the sink, named in the error.

    Raises:
        DefinitionError: With the first such option, and the name, the argument or the values to use.
    """
    names = set(known)
    for option, value in options.items():
        if option.lower() not in names:
            hint = did_you_mean(option.lower(), names)
            raise DefinitionError(
                f"{field}: options has {option!r}, which Spark does not know.{hint}", code="option-not-known"
            )
        if option.lower() in _OF_BATCHES:
            raise DefinitionError(
                f"{field}: {option} is for batch reads, and Spark does not apply it to a stream; leave it out.",
                code="option-not-allowed",
            )
        if argument := _LIMITS.get(option.lower()):
            raise DefinitionError(
                f"{field}: {option} is an argument here; use {argument}.", code="option-is-argument"
            )
        if not isinstance(value, str):
            raise DefinitionError(f"{field}: option {option!r} is {value!r}: write it as a string.")
        allowed = _VALUES.get(option.lower(), (value,))
        if value.lower() not in {one.lower() for one in allowed}:
            raise DefinitionError(
                f"{field}: option {option!r} is {value!r}; use {', '.join(allowed[:-1])} or {allowed[-1]}."
            )
        form, described = _FORMS.get(option.lower(), (_ANY, ""))
        if form.fullmatch(value.strip().lower()) is None:
            raise DefinitionError(f"{field}: option {option!r} is {value!r}; give {described}.")
