"""What differs between two checkpoints: offsets, watermark, pinned settings, operators, state versions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.streaming.checkpoint.inspection import Inspection, OperatorView


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same.

    Attributes:
        what: `query`, `batch`, `watermark`, `source`, `conf`, `operator` or `format`.
        name: Which one: a source's name, a setting, `operator 0`.
        a: What the first checkpoint has; None where it has no such thing.
        b: What the second has.
    """

    what: str
    name: str
    a: Any
    b: Any


def diff(a: Inspection, b: Inspection) -> tuple[Difference, ...]:
    """The differences between two checkpoints; empty when they stand at the same place in the same way."""
    return tuple(difference for difference in _all(a, b) if difference.a != difference.b)


def _all(a: Inspection, b: Inspection) -> Iterator[Difference]:
    yield Difference("query", "id", a.query_id, b.query_id)
    yield Difference("format", "offset log", list(a.offset_log_versions), list(b.offset_log_versions))
    yield Difference("format", "commit log", list(a.commit_log_versions), list(b.commit_log_versions))
    yield Difference("batch", "latest offsets", a.latest_offset_batch, b.latest_offset_batch)
    yield Difference("batch", "latest commit", a.latest_committed_batch, b.latest_committed_batch)
    yield Difference("watermark", "next batch", a.watermark_ms, b.watermark_ms)
    yield from _mapping("source", _offsets(a), _offsets(b))
    yield from _mapping("conf", a.conf, b.conf)
    yield from _mapping("operator", _operators(a), _operators(b))


def _mapping(what: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*a, *b}):
        yield Difference(what, name, a.get(name), b.get(name))


def _offsets(of: Inspection) -> dict[str, Any]:
    return {source.key: source.value for source in of.sources}


def _operators(of: Inspection) -> dict[str, Any]:
    return {f"operator {view.operator.id}": _state(view) for view in of.operators}


def _state(view: OperatorView) -> dict[str, Any]:
    return {
        "name": view.operator.name,
        "stores": {store.name: store.partitions for store in view.operator.stores},
        "provider": view.provider,
        "version": view.version,
    }
