"""The records of the benchmarks: bids as JSON, in files of a folder or messages of a topic."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.engines.dev.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP, extra STRING"
CHANNELS = 1000
PARTITIONS = 4
_PER_SECOND = 100


def bids(count: int, *, first: int = 0, refused: float = 0.0, seed: int = 0) -> Iterator[str]:
    """Yield bids, a hundred per second of event time; half of those to refuse are cut off, others have no valid price.

    Args:
        count: How many.
        first: The number of the first one, which its time follows from.
        refused: The share of bids that a rule or the schema refuses.
        seed: Of the random values.
    """
    chance = random.Random(seed).random
    for number in range(first, first + count):
        second = number // _PER_SECOND
        day, clock = 1 + second // 86400, f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        lot = chance()
        price = -1 if lot < refused / 2 else 1 + int(chance() * 9_999_999)
        record = (
            f'{{"auction": {int(chance() * 100_000)}, "bidder": {int(chance() * 50_000)}, "price": {price}, '
            f'"channel": "channel-{int(chance() * CHANNELS)}", '
            f'"url": "https://www.example.com/{int(chance() * 1e6)}/item.htm?query=1&id={int(chance() * 1e7)}", '
            f'"date_time": "2026-01-{day:02}T{clock}.000Z", '
            f'"extra": "{int(chance() * 2**53):x}-{int(chance() * 2**53):x}"}}'
        )
        yield record[:-5] if refused / 2 <= lot < refused else record


@contextmanager
def broker_of(source: str, topic: str) -> Iterator[str]:
    """Start a broker with an empty topic if the source is one, and yield its address; yield "" for files."""
    if source != "topic":
        yield ""
        return
    with Broker() as broker:
        broker.create_topic(topic, partitions=PARTITIONS)
        yield broker.bootstrap


def into_files(parts: list[list[str]], folder: Path, name: str) -> None:
    """Write a file per part, complete at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for position, part in enumerate(parts):
        temporary = folder / f".{name}-{position}"
        temporary.write_text("\n".join(part) + "\n", encoding="utf-8")
        temporary.replace(folder / f"{name}-{position}.json")


def into_topic(parts: list[list[str]], bootstrap: str, topic: str) -> None:
    """Send the bids to the partitions of a topic in turn."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 200_000})
    for part in parts:
        for position, record in enumerate(part):
            producer.produce(topic, value=record, partition=position % PARTITIONS)
            if position % 100_000 == 0:
                producer.flush()
        producer.flush()


def parsed(messages: "DataFrame") -> "DataFrame":
    """Return the bids in messages of a topic."""
    from pyspark.sql import functions as F

    return messages.select(F.from_json(F.col("value").cast("string"), BID).alias("bid")).select("bid.*")
