"""The differences between two checkpoints: offsets, watermark, settings, operators, state versions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.checkpoint.inspection import Inspection, OperatorView


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        what: The kind: `query`, `batch`, `watermark`, `source`, `conf`, `operator` or `format`.
        name: The name: of a source, of a setting, `operator 0`.
        a: The value in the first checkpoint; None if it has none.
        b: The value in the second checkpoint; None if it has none.
    """

    what: str
    name: str
    a: Any
    b: Any


def diff(a: Inspection, b: Inspection) -> tuple[Difference, ...]:
    """Return the differences between two checkpoints; empty if they are at the same point in the same state."""
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


def _offsets(inspection: Inspection) -> dict[str, Any]:
    return {source.key: source.value for source in inspection.sources}


def _operators(inspection: Inspection) -> dict[str, Any]:
    return {f"operator {view.operator.id}": _state(view) for view in inspection.operators}


def _state(view: OperatorView) -> dict[str, Any]:
    return {
        "name": view.operator.name,
        "stores": {store.name: store.partitions for store in view.operator.stores},
        "provider": view.provider,
        "version": view.version,
    }
