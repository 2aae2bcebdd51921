"""What `defs/` defines is not defined a second time, and dependencies hold across both."""

import pytest
from dagster import AssetSpec, Definitions, in_process_executor, multiprocess_executor, schedule

from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.orchestration.assets.assets import streaming_assets
from tidemill.orchestration.assets.translator import StreamData, StreamTranslator
from tidemill.orchestration.location import CodeLocation
from tidemill.storage.lake import Lake
from tidemill.target.target import Target
from tidemill.text.names import StreamName

FEED = Feed("f", Json("id INT"))


class Prefixed(StreamTranslator):
    def get_asset_spec(self, data):
        spec = super().get_asset_spec(data)
        return (
            spec.replace_attributes(key=spec.key.with_prefix("ours"))
            if isinstance(data, StreamData)
            else spec
        )


@pytest.fixture
def pipelines() -> list[Pipeline]:
    """A pipeline, one that reads it, and one that the first reads in turn."""
    shop, audit = Pipeline("shop"), Pipeline("audit")
    clicks = shop.stream(source=FEED, sink=DeltaAppend(), name="clicks")(lambda e: e)
    copied = audit.stream(source=clicks, sink=DeltaAppend(), name="seen")(lambda rows: rows)
    shop.stream(source=copied, sink=DeltaAppend(), name="back")(lambda rows: rows)
    return [shop, audit]


@pytest.fixture
def target(tmp_path) -> Target:
    return Target(name="t", lake=Lake.at(tmp_path))


def names(specs) -> dict[str, set[str]]:
    return {
        spec.key.to_user_string(): {dep.asset_key.to_user_string() for dep in spec.deps} - {"feed/f"}
        for spec in specs
    }


def test_every_pipeline_has_assets_without_code_in_defs(pipelines, target):
    location = CodeLocation.of(pipelines, Definitions(), target)
    assert names(location.specs) == {
        "shop/clicks": set(),
        "shop/back": {"audit/seen"},
        "audit/seen": {"shop/clicks"},
    }


def test_a_pipeline_that_defs_builds_is_left_out(pipelines, target):
    own = Definitions(
        assets=[streaming_assets(pipeline, Prefixed(), target=target) for pipeline in pipelines]
    )
    location = CodeLocation.of(pipelines, own, target)
    assert location.assets == {}
    assert names(location.specs)["ours/audit/seen"] == {"ours/shop/clicks"}
    assert location.keys[StreamName("audit", "seen")].to_user_string() == "ours/audit/seen"


def test_a_pipeline_is_read_under_the_keys_that_defs_gave_it(target):
    shop, audit = Pipeline("shop"), Pipeline("audit")
    clicks = shop.stream(source=FEED, sink=DeltaAppend(), name="clicks")(lambda e: e)
    audit.stream(source=clicks, sink=DeltaAppend(), name="seen")(lambda rows: rows)
    own = Definitions(assets=[streaming_assets(shop, Prefixed())])
    location = CodeLocation.of([shop, audit], own, target)
    assert names(location.specs) == {"ours/shop/clicks": set(), "audit/seen": {"ours/shop/clicks"}}


def test_different_translators_of_pipelines_that_read_each_other_are_refused(pipelines, target):
    own = Definitions(assets=[streaming_assets(pipelines[1], Prefixed())])
    with raises("translators-differ") as caught:  # `audit` looks for shop/clicks under its own prefix
        CodeLocation.of(pipelines, own, target)
    assert str(caught.value) == (
        "audit/seen: it reads shop/clicks, whose asset is 'shop/clicks', but its own asset 'ours/audit/seen' "
        "does not depend on that one. Fix: Build the assets of the pipelines 'shop' and 'audit' "
        "with the same translator."
    )


def test_what_defs_defines_takes_precedence(target):
    @schedule(cron_schedule="@daily", target="*")
    def nightly(_): ...

    @schedule(cron_schedule="@hourly", target="*", name="nightly")
    def ours_nightly(_): ...

    feed = AssetSpec(["feed", "f"], description="own")
    own = Definitions(
        assets=[feed], schedules=[nightly], resources={"spark": "own"}, executor=multiprocess_executor
    )
    ours = Definitions(
        assets=[AssetSpec(["feed", "f"]), AssetSpec(["feed", "g"])],
        schedules=[ours_nightly],
        resources={"spark": "ours", "streams": "ours"},
        executor=in_process_executor,
    )
    merged = CodeLocation.of([], own, target).merged(ours)
    assert [(spec.key.path[-1], spec.description) for spec in merged.assets] == [("f", "own"), ("g", None)]
    assert list(merged.schedules) == [nightly]
    assert merged.resources == {"spark": "own", "streams": "ours"}
    assert merged.executor is multiprocess_executor
