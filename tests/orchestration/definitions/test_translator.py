"""Streams as asset specs: keys, dependencies, kinds, code version, and a custom translator."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
from dagster import AssetKey, AssetSpec, Definitions

from tidemill import (
    DeltaAppend,
    DeltaMerge,
    DeltaSource,
    Expect,
    Feed,
    FileSource,
    JdbcSource,
    Json,
    KafkaSource,
    Pipeline,
    QueryOptions,
)
from tidemill.connectors.answers import ExternalData
from tidemill.definitions.code_version import code_version
from tidemill.orchestration.assets.assets import streaming_assets, streaming_resources
from tidemill.orchestration.assets.translator import (
    StreamTranslator,
    external_assets,
    stream_specs,
)
from tidemill.storage.lake import Lake
from tidemill.target.target import FolderBinding, KafkaCluster, Target, TopicBinding


def target(root: Path) -> Target:
    """A target that binds `ad-clicks` to a folder and `ad-views` to a topic, and nothing else."""
    topic = TopicBinding(KafkaCluster("broker:9092", password="hidden"), "views")  # noqa: S106
    return Target(
        name="t",
        lake=Lake.at(root),
        feeds={"ad-clicks": FolderBinding(Path("/landing/ad-clicks")), "ad-views": topic},
    )


def shop() -> Pipeline:
    pipeline = Pipeline("shop", description="A shop.", owners=("team:web",), tags={"domain": "web"})

    @pipeline.stream(source=Feed("ad-clicks", Json("id STRING")), sink=DeltaAppend())
    def clicks(events):
        """Every click."""
        return events

    @pipeline.stream(source=Feed("ad-views", Json("id STRING")), sink=DeltaAppend())
    def views(events):
        return events

    @pipeline.stream(
        source=Feed("ad-prices", Json("id STRING, at BIGINT")),
        sink=DeltaMerge(keys=["id"], sequence_by="at"),
    )
    def prices(events):
        return events

    @pipeline.stream(
        source={"clicks": clicks, "views": views, "prices": prices.static()},
        sink=DeltaAppend(),
        owners=["ann@example.com"],
        tags={"tier": "gold"},
    )
    def joined(clicks, views, prices):
        return clicks.join(views, "id").join(prices, "id")

    @pipeline.stream(
        source={
            "topics": KafkaSource(cluster="main", subscribe=("a", "b")),
            "files": FileSource(path="/data/in", format="json", schema="id STRING"),
            "table": DeltaSource(path="/data/table"),
            "people": JdbcSource(table="crm.people", database="sales"),
            "countries": JdbcSource(query="SELECT id FROM crm.countries"),
        },
        sink=DeltaAppend(),
    )
    def outside(topics, files, table, people, countries):
        return topics.union(files).union(table).join(people, "id").join(countries, "id")

    return pipeline


@pytest.fixture
def specs(tmp_path):
    specs = stream_specs(shop(), StreamTranslator(), target(tmp_path))
    return {name.stream: spec for name, spec in specs.items()}


def dependencies(spec) -> set[str]:
    return {dep.asset_key.to_user_string() for dep in spec.deps}


def test_a_stream_is_an_asset_of_its_pipelines_group(specs):
    clicks = specs["clicks"]
    assert clicks.key == AssetKey(["shop", "clicks"])
    assert clicks.group_name == "shop"
    assert clicks.description == "Every click."
    assert list(clicks.owners) == ["team:web"]
    assert clicks.tags["domain"] == "web"
    assert clicks.skippable


def test_owners_and_tags_of_a_stream_come_before_those_of_the_pipeline(specs):
    assert list(specs["joined"].owners) == ["ann@example.com"]
    assert {"domain": "web", "tier": "gold"}.items() <= specs["joined"].tags.items()


def test_streaming_and_static_upstreams_are_dependencies(specs):
    assert dependencies(specs["joined"]) == {"shop/clicks", "shop/views", "shop/prices"}


def test_external_data_is_a_dependency(specs):
    assert dependencies(specs["clicks"]) == {"feed/ad-clicks"}
    assert dependencies(specs["outside"]) == {
        "kafka/main/a",
        "kafka/main/b",
        "files/data/in",
        "delta/data/table",
        "postgres/sales/crm/people",
        "postgres/default/query-4a3317f7",
    }


def test_kinds_name_what_a_stream_reads_from_outside(specs):
    assert specs["clicks"].kinds == {"spark", "deltalake", "file"}
    assert specs["views"].kinds == {"spark", "deltalake", "kafka"}
    assert specs["prices"].kinds == {"spark", "deltalake"}  # nothing binds its feed
    assert specs["joined"].kinds == {"spark", "deltalake"}
    assert specs["outside"].kinds == {"spark", "deltalake", "kafka", "file", "postgres"}


def test_a_table_that_does_not_exist_yet_has_a_path_and_no_columns(specs, tmp_path):
    metadata = specs["clicks"].metadata
    assert metadata["dagster/table_name"] == "shop.clicks"
    assert metadata["dagster/uri"] == (tmp_path / "tables/shop/clicks").as_uri()
    assert "dagster/column_schema" not in metadata


def test_tables_are_opened_side_by_side(tmp_path, monkeypatch):
    both = Barrier(2)

    def opened(stream, _target):
        if stream.name.stream in ("clicks", "people"):
            both.wait(timeout=10)  # breaks unless the other table is being opened, too
        return {}

    monkeypatch.setattr("tidemill.orchestration.assets.translator.definition_metadata", opened)
    pipeline = Pipeline("pair")
    for name in ("clicks", "people"):
        pipeline.stream(source=Feed(name, Json("n INT")), sink=DeltaAppend(), name=name)(lambda rows: rows)
    assert len(stream_specs(pipeline, StreamTranslator(), target(tmp_path))) == 2


def test_a_translator_that_builds_its_own_specs_keeps_the_name_of_the_stream():
    class Own(StreamTranslator):
        def get_asset_spec(self, data):
            return AssetSpec(super().get_asset_spec(data).key)

    by_name = stream_specs(shop(), Own(), None)
    assert {str(name) for name in by_name} == {spec.metadata["tidemill/stream"] for spec in by_name.values()}


def test_each_external_source_is_one_asset(tmp_path):
    specs = external_assets([shop(), shop()], target=target(tmp_path))
    by_key = {spec.key.to_user_string(): spec for spec in specs}
    assert set(by_key) == {
        "feed/ad-clicks",
        "feed/ad-views",
        "feed/ad-prices",
        "kafka/main/a",
        "kafka/main/b",
        "files/data/in",
        "delta/data/table",
        "postgres/sales/crm/people",
        "postgres/default/query-4a3317f7",
    }
    assert by_key["feed/ad-views"].kinds == {"kafka"}
    assert by_key["feed/ad-views"].metadata["tidemill/binding"] == "kafka://broker:9092/views"
    assert "hidden" not in str(by_key)


class Prefixed(StreamTranslator):
    def get_asset_spec(self, data):
        spec = super().get_asset_spec(data)
        owners = ["team:outside"] if isinstance(data, ExternalData) else [*spec.owners]
        return spec.replace_attributes(key=spec.key.with_prefix("prod"), owners=owners)


def test_a_changed_key_is_changed_wherever_it_is_a_dependency():
    by_name = {name.stream: spec for name, spec in stream_specs(shop(), Prefixed(), None).items()}
    assert by_name["joined"].key == AssetKey(["prod", "shop", "joined"])
    assert dependencies(by_name["joined"]) == {"prod/shop/clicks", "prod/shop/views", "prod/shop/prices"}
    assert dependencies(by_name["clicks"]) == {"prod/feed/ad-clicks"}
    assert {spec.key.path[0] for spec in external_assets([shop()], Prefixed())} == {"prod"}


class PrefixedStreams(StreamTranslator):
    """Changes the keys of streams only, by what it knows of the stream itself."""

    def get_asset_spec(self, data):
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=spec.key.with_prefix("prod")) if hasattr(data, "stream") else spec


def copy_of_clicks(reading):
    pipeline = Pipeline("audit")
    pipeline.stream(source=reading, sink=DeltaAppend(), name="copied")(lambda clicks: clicks)
    return pipeline


@pytest.mark.parametrize(
    "reads",
    [lambda s: s, lambda s: s.with_watermark("at", "1 hour"), lambda s: s.limited(max_files_per_batch=3)],
)
def test_a_stream_of_another_pipeline_is_a_dependency_by_its_key_there(reads, tmp_path):
    first = shop()
    audit = copy_of_clicks(reads(first["clicks"]))
    (spec,) = stream_specs(audit, PrefixedStreams(), target(tmp_path)).values()
    (upstream,) = (s for n, s in stream_specs(first, PrefixedStreams(), None).items() if n.stream == "clicks")
    assert dependencies(spec) == {upstream.key.to_user_string()} == {"prod/shop/clicks"}
    assert external_assets([audit]) == []


def test_an_asset_names_what_each_source_reads_whatever_the_keys_are(tmp_path):
    specs = {n.stream: s for n, s in stream_specs(shop(), PrefixedStreams(), target(tmp_path)).items()}
    assert specs["joined"].metadata["tidemill/inputs"] == {
        "clicks": ["prod/shop/clicks"],
        "views": ["prod/shop/views"],
        "prices": ["prod/shop/prices"],
    }
    assert specs["outside"].metadata["tidemill/inputs"]["topics"] == ["kafka/main/a", "kafka/main/b"]


def test_an_asset_names_its_stream_whatever_its_key_is():
    specs = stream_specs(shop(), PrefixedStreams(), None)
    assert {spec.metadata["tidemill/stream"] for spec in specs.values()} == {str(name) for name in specs}


def test_an_asset_refers_to_the_lines_of_its_declaration(specs):
    (reference,) = specs["clicks"].metadata["dagster/code_references"].code_references
    assert reference.file_path == __file__
    assert reference.label == f"{Path(__file__).name}:{reference.line_number}"
    assert "ad-clicks" in Path(__file__).read_text().splitlines()[reference.line_number - 1]


def test_a_stream_without_a_file_has_no_code_reference():
    namespace: dict[str, object] = {}
    exec("def same(events):\n    return events", namespace)  # noqa: S102
    pipeline = Pipeline("p")
    pipeline.stream(source=Feed("f", Json("id STRING")), sink=DeltaAppend())(namespace["same"])
    (spec,) = stream_specs(pipeline, StreamTranslator(), None).values()
    assert "dagster/code_references" not in spec.metadata


def test_the_code_version_of_a_reader_does_not_follow_the_stream_that_it_reads():
    versions = {
        code_version(copy_of_clicks(pipeline["clicks"])["copied"]) for pipeline in (shop(), renamed_shop())
    }
    assert len(versions) == 1


def renamed_shop():
    pipeline = Pipeline("shop")
    pipeline.stream(source=Feed("other", Json("id STRING")), sink=DeltaAppend(), name="clicks")(lambda e: e)
    return pipeline


def declared(source=None, sink=None, *, function=None, **declared):
    def same(events):
        return events

    stream = Pipeline("p").stream(
        source=source or Feed("f", Json("id STRING")), sink=sink or DeltaAppend(), name="s", **declared
    )
    return code_version(stream(function or same))


def test_the_code_version_covers_all_that_is_declared():
    def other(events):
        return events.distinct()

    versions = [
        declared(),
        declared(function=other),
        declared(source=Feed("f", Json("id STRING, n INT"))),
        declared(source=Feed("f", Json("id STRING"), rules={"id": "id IS NOT NULL"})),
        declared(sink=DeltaAppend(partition_by=["id"])),
        declared(expect=[Expect("known", "id IS NOT NULL")]),
        declared(query=QueryOptions(shuffle_partitions=3)),
    ]
    assert len(set(versions)) == len(versions)


def test_comments_layout_and_docstrings_do_not_change_the_code_version():
    def same(events):
        """Explained."""
        # and commented
        return (
            events
        )  # fmt: skip

    assert declared(function=same) == declared()


class Doubled:
    """A callable object."""

    def __call__(self, events):
        """Explained."""
        return events.union(events)

    def method(self, events):
        return events


def renamed(events, column):
    return events.withColumnRenamed("id", column)


CALLABLES = {
    "partial": partial(renamed, column="a"),
    "partial of other arguments": partial(renamed, column="b"),
    "partial of a partial": partial(partial(renamed), column="c"),
    "object": Doubled(),
    "method": Doubled().method,
    "lambda": lambda events: events.distinct(),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_any_callable_is_the_function_of_a_loadable_asset(name):
    pipeline = Pipeline("p")
    source = {"events": Feed("f", Json("id STRING"))}
    pipeline.stream(source=source, sink=DeltaAppend(), name="s")(CALLABLES[name])
    Definitions.validate_loadable(
        Definitions(assets=[streaming_assets(pipeline)], resources=streaming_resources())
    )


def test_each_callable_has_a_code_version_of_its_own():
    versions = [declared(function=function) for function in CALLABLES.values()]
    assert len(set(versions)) == len(versions)
    assert versions == [declared(function=function) for function in CALLABLES.values()]


def test_a_docstring_at_the_left_margin_is_no_obstacle():
    def same(events):
        """Explained
        in two lines.
        """
        return events

    assert declared(function=same) == declared()


def test_a_function_without_source_has_a_code_version():
    namespace: dict[str, object] = {}
    exec("def same(events):\n    return events", namespace)  # noqa: S102
    assert declared(function=namespace["same"])


def test_the_code_version_is_the_same_in_another_process(tmp_path):
    root = Path(__file__).parents[3]
    script = tmp_path / "declares.py"
    script.write_text(
        """
from tidemill.definitions.code_version import code_version
from tidemill import *

FEED = Feed("f", Json("id STRING"), rules={"a": "1", "b": "2"})

@Pipeline("p").stream(source=FEED, sink=DeltaAppend())
def stream(events):
    return events.where("id IN ('x', 'y')")

print(code_version(stream))
"""
    )
    versions = {
        subprocess.run(
            [sys.executable, str(script)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(versions) == 1


class Plain:
    """An object that Python prints with its address."""


def test_an_object_that_is_printed_with_its_address_is_known_by_its_type():
    one, other = Plain(), Plain()
    versions = [declared(function=partial(renamed, column=column)) for column in (one, other)]
    assert str(one) != str(other)
    assert versions[0] == versions[1]


def test_lambdas_that_share_an_indented_line_have_a_code_version():
    if True:
        other = lambda events: events.distinct(); same = lambda events: events  # noqa: E702, E731  # fmt: skip
    assert declared(function=same) == declared(function=other)  # the line is all that Python knows of either
