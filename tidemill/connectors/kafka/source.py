"""Kafka topics as a source."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidemill.connectors.known_options import KAFKA_OPTIONS, known_options, option_of
from tidemill.definitions.source import Source, positive
from tidemill.errors import DefinitionError
from tidemill.text.secret import is_secret

if TYPE_CHECKING:
    from tidemill.target.target import KafkaCluster, Target

_OWN = {
    "subscribe": "subscribe=",
    "subscribepattern": "subscribe_pattern=",
    "assign": "assign=",
    "startingoffsets": "starting_offsets=",
    "includeheaders": "include_headers=",
    "kafka.bootstrap.servers": "cluster=, and bootstrap of that cluster in the target",
}
# Spark sets them itself and refuses them (Kafka guide, "Kafka Specific Configurations").
_OF_SPARK = frozenset(
    f"kafka.{name}"
    for name in (
        "auto.offset.reset",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "value.deserializer",
    )
)


EARLIEST = -2  # in startingOffsets
_STARTS = ("startingtimestamp", "startingoffsetsbytimestamp")
# A first run over a topic of years would otherwise be one batch.
MAX_RECORDS_PER_BATCH = 1_000_000


@dataclass(frozen=True, kw_only=True)
class KafkaSource(Source):
    """Topics of a cluster with the columns of Spark's Kafka source: key, value, topic, partition, offset, ...

    Exactly one of `subscribe`, `subscribe_pattern` and `assign` selects the topics.

    Attributes:
        cluster: A cluster's name in the target.
        subscribe: A topic by its name, or a list of them.
        subscribe_pattern: Topics by a Java regular expression.
        assign: Partitions by topic.
        starting_offsets: `earliest`, `latest` or offsets by topic and partition (-2: earliest, -1: latest); the first
            run only. A partition that is left out begins at its first message.
        max_records_per_batch: The most messages per micro-batch; None: no limit.
        include_headers: Adds the column `headers`.
        options: Further options of Spark's Kafka source.
    """

    kind = "kafka"
    cluster: str = "default"
    subscribe: str | Sequence[str] = ()
    subscribe_pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    starting_offsets: str | Mapping[str, Mapping[int, int]] = "earliest"
    max_records_per_batch: int | None = MAX_RECORDS_PER_BATCH
    include_headers: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.subscribe, str):
            if "," in self.subscribe:
                topics = [topic.strip() for topic in self.subscribe.split(",")]
                raise DefinitionError(
                    f"KafkaSource: subscribe is {self.subscribe!r}, which is not the name of a topic; give several "
                    f"topics as a list: subscribe={topics}."
                )
            object.__setattr__(self, "subscribe", (self.subscribe,))
        object.__setattr__(self, "subscribe", _topics(self.subscribe))
        chosen = [bool(self.subscribe), bool(self.subscribe_pattern), bool(self.assign)]
        if sum(chosen) != 1:
            raise DefinitionError(
                "KafkaSource: give exactly one of subscribe, subscribe_pattern and assign "
                f"(subscribe={self.subscribe!r}, subscribe_pattern={self.subscribe_pattern!r}, "
                f"assign={dict(self.assign)!r}).",
                code="arguments-conflict",
            )
        if isinstance(self.starting_offsets, str) and self.starting_offsets not in ("earliest", "latest"):
            raise DefinitionError(
                f"KafkaSource: starting_offsets is {self.starting_offsets!r}; use earliest, latest, or offsets by "
                "topic and partition."
            )
        if not isinstance(self.starting_offsets, str):
            _check_offsets(self.starting_offsets, {*self.subscribe, *self.assign}, self.assign)
        positive(self.max_records_per_batch, field="KafkaSource: max_records_per_batch")
        check_options(self.options, field="KafkaSource")
        by_time = [option for option in self.options if option.lower() in _STARTS]
        if len(by_time) > 1 or (by_time and self.starting_offsets != "earliest"):
            raise DefinitionError(
                f"KafkaSource: options has {by_time[0]!r}, which replaces "
                f"{by_time[1] if len(by_time) > 1 else 'starting_offsets='}; give one of them.",
                code="arguments-conflict",
            )

    def cluster_in(self, target: "Target") -> "KafkaCluster":
        """Return the cluster in a target.

        Raises:
            ConfigurationError: The target has no cluster of that name.
        """
        return target.cluster(self.cluster)

    def starting_at(self, offsets: Mapping[str, Mapping[int, int]]) -> "KafkaSource":
        """Return the source with other starting offsets, in place of all that it declares."""
        options = {name: value for name, value in self.options.items() if name.lower() not in _STARTS}
        return replace(self, starting_offsets=offsets, options=options)

    @property
    def fails_on_data_loss(self) -> bool:
        """Whether messages, or a topic, that are missing are an error."""
        return option_of(self.options, "failondataloss") != "false"

    def describe(self) -> str:
        """Return the topics and the cluster."""
        what = ", ".join(self.subscribe) or self.subscribe_pattern or ", ".join(self.assign)
        return f"Kafka {what} on {self.cluster}"


def _topics(topics: Sequence[str]) -> tuple[str, ...]:
    """Return the names of topics.

    Raises:
        DefinitionError: One is no name, or is there twice.
    """
    names = tuple(topics)
    for name in names:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"KafkaSource: subscribe has {name!r}, which is not the name of a topic.")
    if len(set(names)) < len(names):
        raise DefinitionError(f"KafkaSource: subscribe is {list(names)}: name each topic once.")
    return names


def _check_offsets(
    offsets: Mapping[str, Mapping[int, int]],
    topics: Collection[str],
    assigned: Mapping[str, Sequence[int]],
) -> None:
    """Check what Spark would refuse when the first run starts.

    Args:
        offsets: Offsets by topic and partition.
        topics: The topics that are read; empty where a pattern says it.
        assigned: The partitions that are read, by topic; empty where it is all of them.

    Raises:
        DefinitionError: With the topic, the partition and the offset.
    """
    where = "KafkaSource: starting_offsets"
    for topic, numbers in offsets.items():
        if topics and topic not in topics:
            raise DefinitionError(
                f"{where} has the topic {topic!r}, which the source does not read: it reads {sorted(topics)}."
            )
        if not isinstance(numbers, Mapping):
            raise DefinitionError(
                f"{where} has {numbers!r} for {topic!r}; give offsets by partition: {{0: 17}}."
            )
        for number, at in numbers.items():
            if not all(isinstance(value, int) and not isinstance(value, bool) for value in (number, at)):
                raise DefinitionError(
                    f"{where} has {number!r}: {at!r} for {topic!r}; partitions and offsets are whole numbers."
                )
            if number < 0 or at < EARLIEST:
                raise DefinitionError(
                    f"{where} has {number}: {at} for {topic!r}; an offset is at least 0, -1 (latest) or -2 (earliest)."
                )
            if assigned and number not in assigned[topic]:
                raise DefinitionError(
                    f"{where} has partition {number} of {topic!r}, and assign has {list(assigned[topic])}."
                )


def check_options(options: Mapping[str, str], *, field: str) -> None:
    """Refuse options that would break an available-now run, that are an argument here, or that do not exist.

    Raises:
        DefinitionError: With the option and the alternative.
    """
    plain = {option: value for option, value in options.items() if not option.lower().startswith("kafka.")}
    known_options(plain, KAFKA_OPTIONS | {*_OWN, "minoffsetspertrigger"}, field=field)
    for option in options:
        lowered = option.lower()
        if lowered == "minoffsetspertrigger":
            raise DefinitionError(
                f"{field}: minOffsetsPerTrigger can leave a tail unread in an available-now run. "
                "Let the schedule decide when a run is worth it, and leave the option out.",
                code="option-not-allowed",
            )
        if lowered in _OWN:
            raise DefinitionError(
                f"{field}: {option} is an argument here; use {_OWN[lowered]}.", code="option-is-argument"
            )
        if lowered in _OF_SPARK:
            raise DefinitionError(
                f"{field}: {option} is set by Spark's Kafka source; leave it out.", code="option-not-allowed"
            )
        if lowered.startswith("kafka.") and is_secret(option):
            raise DefinitionError(
                f"{field}: {option} is a credential, which belongs to the target's cluster.",
                code="option-not-allowed",
            )
