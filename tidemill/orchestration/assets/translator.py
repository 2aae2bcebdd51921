"""How streams, and the external data that they read, become Dagster assets."""

import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dagster import AssetKey, AssetSpec, BetaWarning, CodeReferencesMetadataValue, LocalFileCodeReference

from tidemill.connectors.answers import ExternalData
from tidemill.connectors.registry import connector_of
from tidemill.definitions.code_version import code_version
from tidemill.definitions.declaration import underlying
from tidemill.definitions.stream import Stream
from tidemill.orchestration.assets.metadata import definition_metadata

if TYPE_CHECKING:
    from tidemill.definitions.pipeline import Pipeline
    from tidemill.definitions.source import Source
    from tidemill.orchestration.assets.metadata import Metadata
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

EXTERNAL_GROUP = "sources"
_THREADS = 8
INPUTS = "tidemill/inputs"
"""The metadata entry with the keys of the assets that a stream reads, by the name of its source."""
STREAM = "tidemill/stream"
"""The metadata entry with the name of an asset's stream, whatever key a translator has given to the asset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamData:
    """A stream, as the translator receives it.

    Attributes:
        stream: The stream.
        inputs: The asset keys of the streams and external data that it reads; empty where only the key of the
            stream is needed, as a dependency of another pipeline.
        sources: The same keys by source; a source of several Kafka topics has several.
        kinds: The kinds of the external data that it reads: `kafka`, `file` or `deltalake`; likewise.
        target: The target; None where assets are created without one.
        table: Metadata of its table as it is now: its path, and its columns once it exists; empty likewise.
    """

    stream: "Stream"
    inputs: tuple[AssetKey, ...] = ()
    sources: Mapping[str, tuple[AssetKey, ...]] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    target: "Target | None" = None
    table: "Metadata" = field(default_factory=dict)


class StreamTranslator:
    """Creates asset specs; override `get_asset_spec` to change keys, groups, owners or anything else.

    Pipelines that read each other's streams need the same translator, because it also names their dependencies.

    ```python
    class Ours(StreamTranslator):
        def get_asset_spec(self, data):
            return super().get_asset_spec(data).merge_attributes(tags={"domain": "advertising"})
    ```
    """

    def get_asset_spec(self, data: StreamData | ExternalData) -> AssetSpec:
        """Return the spec of one asset.

        A key that is changed here also changes in the dependencies of other streams, in all pipelines. It may
        depend on the stream and on the target, and on nothing else.
        """
        if isinstance(data, ExternalData):
            return AssetSpec(
                AssetKey(list(data.path)),
                description=data.description,
                group_name=EXTERNAL_GROUP,
                kinds={data.kind} if data.kind else set(),
                metadata=data.metadata,
            )
        stream = data.stream
        return AssetSpec(
            AssetKey([stream.name.pipeline, stream.name.stream]),
            deps=data.inputs,
            description=stream.description,
            group_name=stream.name.pipeline,
            kinds={"spark", "deltalake", *data.kinds},
            owners=stream.owners,
            tags=stream.tags,
            code_version=code_version(stream),
            metadata={
                STREAM: str(stream.name),
                INPUTS: _input_keys(data.sources),
                **code_reference(stream),
                **data.table,
            },
            skippable=True,
        )


def stream_specs(
    pipeline: "Pipeline", translator: StreamTranslator, target: "Target | None"
) -> dict["StreamName", AssetSpec]:
    """Return the specs of a pipeline's streams, in the order of their declaration.

    A stream is declared after the streams that it reads, so their keys are known.
    """
    specs: dict[StreamName, AssetSpec] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        # Opening a table takes longer than all else about a stream, and most of that time without Python's lock.
        tables = (
            {} if target is None else {s.name: pool.submit(definition_metadata, s, target) for s in pipeline}
        )
        for stream in pipeline:
            sources, kinds = _sources(stream, specs, translator, target)
            spec = translator.get_asset_spec(
                StreamData(
                    stream=stream,
                    inputs=tuple(dict.fromkeys(key for keys in sources.values() for key in keys)),
                    sources=sources,
                    kinds=kinds,
                    target=target,
                    table=tables[stream.name].result() if stream.name in tables else {},
                )
            )
            # A translator may build a spec of its own. A copy of every other one takes as long as the original.
            known = {STREAM, INPUTS} <= spec.metadata.keys()
            ours = {STREAM: str(stream.name), INPUTS: _input_keys(sources)}
            specs[stream.name] = spec if known else spec.merge_attributes(metadata=ours)
    return specs


def _input_keys(sources: Mapping[str, tuple[AssetKey, ...]]) -> dict[str, list[str]]:
    return {name: [key.to_user_string() for key in keys] for name, keys in sources.items()}


def _sources(
    stream: "Stream",
    specs: "Mapping[StreamName, AssetSpec]",
    translator: StreamTranslator,
    target: "Target | None",
) -> tuple[dict[str, tuple[AssetKey, ...]], frozenset[str]]:
    """Return the assets that a stream reads, by source, and the kinds of those that no stream writes."""
    sources: dict[str, tuple[AssetKey, ...]] = {}
    kinds: set[str] = set()
    for name, source in stream.sources.items():
        if (upstream := source.upstream) is not None:
            own = specs.get(upstream)
            key = _key_elsewhere(source, upstream, translator, target) if own is None else own.key
            sources[name] = (key,)
            continue
        external = list(connector_of(source).external(source, target))
        sources[name] = tuple(translator.get_asset_spec(data).key for data in external)
        kinds |= {data.kind for data in external if data.kind}
    return sources, frozenset(kinds)


def stream_keys(
    pipeline: "Pipeline", translator: StreamTranslator | None = None
) -> dict["StreamName", AssetKey]:
    """Return the asset keys of a pipeline's streams, in the order of their declaration."""
    specs = stream_specs(pipeline, translator or StreamTranslator(), None)
    return {name: spec.key for name, spec in specs.items()}


def _key_elsewhere(
    source: "Source", upstream: "StreamName", translator: StreamTranslator, target: "Target | None"
) -> AssetKey:
    """Return the key of a stream of another pipeline."""
    definition = getattr(source, "definition", None)
    if not isinstance(definition, Stream):
        return AssetKey([upstream.pipeline, upstream.stream])
    return translator.get_asset_spec(StreamData(stream=definition, target=target)).key


def external_assets(
    pipelines: "Iterable[Pipeline]",
    translator: StreamTranslator | None = None,
    *,
    target: "Target | None" = None,
) -> list[AssetSpec]:
    """Return one spec per feed, topic, folder and table that streams read and no stream writes.

    Args:
        pipelines: All pipelines of the code location; several may read the same feed.
        translator: How data become assets.
        target: The target, which decides whether a feed is a topic or a folder; None leaves that open.
    """
    translator = translator or StreamTranslator()
    specs = {}
    for pipeline in pipelines:
        for stream in pipeline:
            for source in stream.sources.values():
                if source.upstream is None:
                    for data in connector_of(source).external(source, target):
                        spec = translator.get_asset_spec(data)
                        specs[spec.key] = spec
    return list(specs.values())


def external_key(source: "Source", translator: StreamTranslator, target: "Target | None") -> AssetKey:
    """Return the asset key of a source that is one asset, such as a feed."""
    return translator.get_asset_spec(next(connector_of(source).external(source, target))).key


def code_reference(stream: "Stream") -> dict[str, CodeReferencesMetadataValue]:
    """Return the metadata entry with the file and the line of `declared_at`; none for code without a file.

    `link_code_references_to_git` of Dagster turns it into a link to a repository.
    """
    code = underlying(stream.function)
    file = None if code.file is None else _file(code.file)
    if file is None:
        return {}
    with warnings.catch_warnings():  # one per stream otherwise, at each load of the code location
        warnings.simplefilter("ignore", BetaWarning)
        reference = LocalFileCodeReference(
            file_path=file,
            line_number=code.line,
            label=stream.declared_at,
        )
        return {"dagster/code_references": CodeReferencesMetadataValue(code_references=[reference])}


@lru_cache(maxsize=1024)
def _file(name: str) -> str | None:
    """Return the absolute path of a file of code; None where it is no file."""
    path = Path(name)
    return str(path.resolve()) if path.is_file() else None
