"""The pipelines of a code location: those that `defs/` builds itself, and Tidemill's assets for all others.

Code in `orchestration/defs/` takes precedence: what it defines is not defined a second time. So a team builds the
assets of its pipelines with a translator, a pool or hooks of its own without an edit of `definitions.py`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster import AssetKey, AssetsDefinition, AssetSpec, Definitions

from tidemill.connectors.answers import ExternalData
from tidemill.errors import DefinitionError
from tidemill.orchestration.assets.assets import streaming_assets
from tidemill.orchestration.assets.translator import STREAM, StreamData, StreamTranslator
from tidemill.text.names import StreamName

if TYPE_CHECKING:
    from tidemill.definitions.pipeline import Pipeline
    from tidemill.target.target import Target


class _LocationTranslator(StreamTranslator):
    """A translator with the keys that `defs/` has given to streams, and a prefix for all others.

    Args:
        keys: The keys of `defs/`.
    """

    def __init__(
        self, translator: StreamTranslator, keys: Mapping[StreamName, AssetKey], key_prefix: Sequence[str]
    ) -> None:
        self._translator = translator
        self._keys = keys
        self._key_prefix = key_prefix

    def get_asset_spec(self, data: StreamData | ExternalData) -> AssetSpec:
        """Return the spec of one asset."""
        spec = self._translator.get_asset_spec(data)
        key = self._keys.get(data.stream.name) if isinstance(data, StreamData) else None
        if key is None and self._key_prefix:
            key = spec.key.with_prefix(self._key_prefix)
        return spec if key is None else spec.replace_attributes(key=key)


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """The pipelines of a target next to the code in `defs/`.

    Attributes:
        own: What `defs/` defines.
        assets: Tidemill's assets by pipeline, for the pipelines that `defs/` does not build.
        translator: How streams and external data become assets.
        prefix: What the names of jobs, sensors, schedules, ops and resources begin with.
    """

    own: Definitions
    assets: Mapping[str, AssetsDefinition]
    translator: StreamTranslator
    prefix: str = ""

    @classmethod
    def of(
        cls,
        pipelines: "Collection[Pipeline]",
        own: Definitions,
        target: "Target",
        *,
        translator: StreamTranslator | None = None,
        key_prefix: Sequence[str] = (),
    ) -> "CodeLocation":
        """Return the location, with the dependencies of all streams verified.

        Args:
            own: What `defs/` defines.
            translator: How streams and external data become assets, before they get the prefix.
            key_prefix: The parts that asset keys begin with, and names of all else.

        Raises:
            DefinitionError: Two pipelines are built with different translators, and one reads the other.
        """
        keys = keys_by_stream(specs_of(own.assets))
        built = {name.pipeline for name in keys}
        translator = _LocationTranslator(translator or StreamTranslator(), keys, key_prefix)
        prefix = "".join(f"{part}__" for part in key_prefix)
        assets = {
            pipeline.name: streaming_assets(pipeline, translator, target=target, prefix=prefix)
            for pipeline in pipelines
            if pipeline.name not in built
        }
        location = cls(own, assets, translator, prefix)
        _require_dependencies(pipelines, location.specs)
        return location

    @property
    def specs(self) -> list[AssetSpec]:
        """The specs of all assets."""
        return [*specs_of(self.own.assets), *specs_of(self.assets.values())]

    @property
    def keys(self) -> "dict[StreamName, AssetKey]":
        """The asset keys of all streams."""
        return keys_by_stream(self.specs)

    def keys_of(self, pipeline: "Pipeline") -> "dict[StreamName, AssetKey]":
        """Return the asset keys of a pipeline's streams; `defs/` may have left some of them out."""
        keys = self.keys
        return {stream.name: keys[stream.name] for stream in pipeline if stream.name in keys}

    @property
    def spark(self) -> Any:
        """The resource `spark` of `defs/`; None where it has none."""
        return (self.own.resources or {}).get(f"{self.prefix}spark")

    def merged(self, ours: Definitions) -> Definitions:
        """Return the definitions of `defs/` and ours, where `defs/` takes precedence."""
        own = self.own
        keys = {spec.key for spec in specs_of(own.assets)}
        return Definitions.merge(
            own,
            Definitions(
                assets=[
                    asset
                    for asset in ours.assets or ()
                    if not isinstance(asset, AssetSpec) or asset.key not in keys
                ],
                asset_checks=ours.asset_checks,
                jobs=_others(ours.jobs, own.jobs),
                sensors=_others(ours.sensors, own.sensors),
                schedules=_others(ours.schedules, own.schedules),
                resources={
                    name: resource
                    for name, resource in (ours.resources or {}).items()
                    if name not in (own.resources or {})
                },
                executor=None if own.executor else ours.executor,
                metadata=ours.metadata,
            ),
        )


def specs_of(assets: "Iterable[object] | None") -> list[AssetSpec]:
    """Return the specs of assets, as `Definitions` has them."""
    specs: list[AssetSpec] = []
    for asset in assets or ():
        match asset:
            case AssetsDefinition():
                specs += asset.specs
            case AssetSpec():
                specs.append(asset)
    return specs


def keys_by_stream(specs: Iterable[AssetSpec]) -> dict[StreamName, AssetKey]:
    """Return the asset keys of the streams among assets."""
    return {
        StreamName.parse(str(spec.metadata[STREAM])): spec.key for spec in specs if STREAM in spec.metadata
    }


def _others(ours: "Iterable[Any] | None", own: "Iterable[Any] | None") -> list[Any]:
    names = {definition.name for definition in own or ()}
    return [definition for definition in ours or () if definition.name not in names]


def _require_dependencies(pipelines: "Iterable[Pipeline]", specs: list[AssetSpec]) -> None:
    """Refuse a stream whose asset does not depend on the assets of the streams that it reads.

    Raises:
        DefinitionError: Two pipelines are built with different translators, and one reads the other.
    """
    keys = keys_by_stream(specs)
    dependencies = {spec.key: {dependency.asset_key for dependency in spec.deps} for spec in specs}
    for pipeline in pipelines:
        for stream in pipeline:
            if (key := keys.get(stream.name)) is None:
                continue
            for upstream in stream.upstreams:
                wanted = keys.get(upstream)
                if wanted is not None and wanted not in dependencies[key]:
                    raise DefinitionError(
                        f"it reads {upstream}, whose asset is {wanted.to_user_string()!r}, but its own asset "
                        f"{key.to_user_string()!r} does not depend on that one.",
                        stream=stream.name,
                        fix=f"Build the assets of the pipelines {upstream.pipeline!r} and {pipeline.name!r} "
                        "with the same translator.",
                        code="translators-differ",
                    )
