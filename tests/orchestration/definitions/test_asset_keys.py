"""Any path, topic and pattern is a key that Dagster loads, and two that differ never share one."""

from pathlib import Path

import pytest
from dagster import AssetKey, Definitions
from dagster._core.definitions.utils import DISALLOWED_NAMES
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaSource, Feed, FileSource, Json, KafkaSource, Pipeline
from tidemill.connectors.external_keys import folder_key, other_key, pattern_key, topic_key
from tidemill.orchestration.assets.assets import pipeline_job, streaming_assets, streaming_resources
from tidemill.orchestration.assets.translator import external_assets
from tidemill.storage.local_store import scheme_of

# Characters with a meaning in paths, patterns and keys, and everything else.
TEXT = st.one_of(
    st.text(alphabet="ab/._-*=+ :?\\\n1", min_size=1, max_size=8), st.text(min_size=1, max_size=6)
)
PATHS = st.one_of(
    TEXT, TEXT.map("/data/{}".format), TEXT.map("s3://bucket/{}".format), TEXT.map("/s3/{}".format)
)
KEYS = st.one_of(
    st.builds(lambda *names: (names, topic_key(*names)), TEXT, TEXT),
    st.builds(lambda *names: (("pattern", *names), pattern_key(*names)), TEXT, TEXT),
    st.builds(lambda path: (("files", same_folder(path)), folder_key("files", path)), PATHS),
    st.builds(lambda path: (("delta", same_folder(path)), folder_key("delta", path)), PATHS),
    st.builds(lambda name: (("source", name), other_key(name)), TEXT),
)


def same_folder(path: str) -> str:
    """A path without what does not change which folder it is."""
    return (path.removeprefix("file://") if path.startswith("file:///") else path).rstrip("/")


def definitions(**sources) -> Definitions:
    """The code location of one pipeline whose only stream reads these sources."""
    pipeline = Pipeline("p")
    code = f"lambda {', '.join(sources)}: None"
    pipeline.stream(source=sources, sink=DeltaAppend(), name="s")(eval(code))  # noqa: S307 - fixed names
    assets = streaming_assets(pipeline)
    return Definitions(
        assets=[assets, *external_assets([pipeline])],
        jobs=[pipeline_job(pipeline, assets)],
        resources=streaming_resources(),
    )


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    path=PATHS, table=PATHS.filter(lambda path: not scheme_of(path)), topic=TEXT, pattern=TEXT, cluster=TEXT
)
@example(path="/data/day=*/[ab]", table="data/a b", topic="a/b", pattern="orders-.*", cluster="a+b")
def test_any_source_gives_a_code_location_that_loads(path, table, topic, pattern, cluster):
    defs = definitions(
        files=FileSource(path=path, format="text"),
        table=DeltaSource(path=table),
        topics=KafkaSource(cluster=cluster, subscribe=(topic,)),
        pattern=KafkaSource(cluster=cluster, subscribe_pattern=pattern),
        assigned=KafkaSource(cluster=f"{cluster}2", assign={topic: (0,)}),
    )
    Definitions.validate_loadable(defs)
    external = {
        key: defs.resolve_asset_graph().get(key) for key in defs.resolve_asset_graph().external_asset_keys
    }
    assert len(external) == 5
    originals = sorted(asset.metadata["tidemill/source"] for asset in external.values())
    assert originals == sorted([path, table, topic, pattern, topic])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(KEYS, KEYS)
@example(
    (("files", "/a/b*"), folder_key("files", "/a/b*")), (("files", "/a/b+"), folder_key("files", "/a/b+"))
)
@example(
    (("files", "/s3/b"), folder_key("files", "/s3/b")), (("files", "s3://b"), folder_key("files", "s3://b"))
)
@example((("files", "/a"), folder_key("files", "/a")), (("files", "a"), folder_key("files", "a")))
@example((("c", "a.b"), topic_key("c", "a.b")), (("pattern", "c", "a.b"), pattern_key("c", "a.b")))
def test_equal_keys_mean_equal_sources(one, other):
    assert (one[0] == other[0]) == (one[1] == other[1])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(PATHS)
def test_no_folder_has_the_key_that_another_has_with_its_hash(path):
    key = folder_key("files", path)
    written_out = "/" + "/".join(key[1:])
    assert folder_key("files", written_out) != key or same_folder(path) == same_folder(written_out)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/data/in", "files/data/in"),
        ("/data/in/", "files/data/in"),
        ("file:///data/in", "files/data/in"),
        ("s3://bucket/in.v2", "files/s3/bucket/in.v2"),
        ("/", "files"),
        ("data/in", "files/data/in-845de4bf"),
        ("/s3/bucket/in.v2", "files/s3/bucket/in.v2-bbcf832d"),
        ("/data/day=*", "files/data/day_-b83f599c"),
    ],
)
def test_a_key_reads_as_the_path_does(path, key):
    assert AssetKey(folder_key("files", path)).to_user_string() == key


@pytest.mark.parametrize("name", sorted(DISALLOWED_NAMES))
def test_a_pipeline_cannot_have_a_name_that_dagster_refuses(name):
    with raises("name-reserved" if name.islower() else "name-invalid", name):  # None, True, False
        Pipeline(name)


def test_the_namespaces_of_keys_are_no_pipeline_names():
    keys = [topic_key("c", "t"), folder_key("files", "/a"), folder_key("delta", "/a"), other_key("x")]
    for namespace in {key[0] for key in keys} | {"feed"}:
        with raises("name-reserved", namespace):
            Pipeline(namespace)


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ('KafkaSource(cluster="main", subscribe="orders")', topic_key("main", "orders")),
        ('KafkaSource(cluster="main", subscribe_pattern="orders-.*")', pattern_key("main", "orders-.*")),
        ('FileSource(path="/data/in", ...)', folder_key("files", "/data/in")),
        ('FileSource(path="/data/day=*", ...)', folder_key("files", "/data/day=*")),
        ('DeltaSource(path="/data/orders")', folder_key("delta", "/data/orders")),
    ],
)
def test_the_page_shows_the_keys_of_sources(source, key):
    page = (Path(__file__).parents[3] / "docs" / "dagster.md").read_text(encoding="utf-8")
    assert f"| `{source}` | `{'/'.join(key)}` |" in page


def test_a_feed_has_the_key_of_its_name():
    (spec,) = external_assets([_with_feed("ad-clicks.v2")])
    assert spec.key == AssetKey(["feed", "ad-clicks.v2"])


def _with_feed(name: str) -> Pipeline:
    pipeline = Pipeline("p")
    pipeline.stream(source=Feed(name, Json("id INT")), sink=DeltaAppend(), name="s")(lambda events: events)
    return pipeline
