"""Days and hours of streams as partitions: what is defined, and what one run over a range replays."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from dagster import (
    AssetKey,
    AssetSelection,
    DagsterInstance,
    Definitions,
    TimeWindow,
    define_asset_job,
    materialize,
)

from tidemill import BackfillBy, DeltaAppend, Feed, Json, Pipeline
from tidemill import functions as F
from tidemill.operations.replay.backfill import BACKFILL
from tidemill.orchestration.assets.assets import streaming_assets, streaming_resources
from tidemill.orchestration.assets.translator import stream_keys
from tidemill.orchestration.jobs.backfill_partitions import PartitionedBackfills, span_of
from tidemill.orchestration.jobs.operation_job import Done
from tidemill.orchestration.spark_resource import SparkResource
from tidemill.records.stream_records import StreamRecords
from tidemill.target.resolve import resolve
from tidemill.testing import Scratch, multiset

DAY = datetime(2026, 1, 1, tzinfo=UTC)
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
ORDERS, UNIQUE = AssetKey(["backfill", "shop", "orders"]), AssetKey(["backfill", "shop", "unique"])


def shop(*, least: int = 0) -> Pipeline:
    """An ingest stream with days, two readers with days, one with hours, and one without."""
    pipeline = Pipeline("shop", owners=["team:shop"])
    days = BackfillBy("day", every="day", since="2026-01-01")
    rule = {"enough": f"amount > {least}"}

    @pipeline.stream(
        source=Feed("orders", Json("id INT, amount INT, at TIMESTAMP"), rules=rule),
        sink=DeltaAppend(),
        backfill_by=days,
    )
    def orders(events):
        return events.withColumn("day", F.to_date("at"))

    earlier = BackfillBy("day", every="day", since="2025-06-01")
    pipeline.stream(source=orders, sink=DeltaAppend(), name="unique", backfill_by=earlier)(
        lambda orders: orders.where("id >= 0").select("id", "amount", "day")
    )
    hours = BackfillBy("at", every="hour", since="2026-01-01")
    pipeline.stream(source=orders, sink=DeltaAppend(), name="hourly", backfill_by=hours)(
        lambda orders: orders
    )
    pipeline.stream(source=orders, sink=DeltaAppend(), name="plain", backfill_by="day")(lambda orders: orders)
    return pipeline


@pytest.fixture
def target(tmp_path, monkeypatch):
    (tmp_path / "tidemill.toml").write_text(
        'pipelines = []\n[targets.dev]\nlake = "lake"\nlanding = "landing"\n'
    )
    monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))
    return resolve()


@pytest.fixture
def instance(tmp_path):
    with DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        yield instance


def partitioned(pipeline: Pipeline) -> PartitionedBackfills:
    return PartitionedBackfills.of([pipeline], stream_keys(pipeline))


def partitions_of(result) -> Counter:
    """Every materialization of a run: the asset, the partition, and the rows that were added."""
    return Counter(
        (event.asset_key, event.partition, materialization.metadata["tidemill/rows_added"].value)
        for event in result.get_asset_materialization_events()
        for materialization in [event.step_materialization_data.materialization]
    )


def test_streams_with_days_or_hours_have_a_second_asset_and_a_job(target):
    pipeline = shop()
    backfills = partitioned(pipeline)
    own = streaming_assets(pipeline)
    defs = Definitions(
        assets=[own, *backfills.assets], jobs=backfills.jobs, resources=streaming_resources(target)
    )
    graph = defs.resolve_asset_graph()
    days, hours = (job.name for job in backfills.jobs)
    assert (days, hours) == ("shop__backfill_days", "shop__backfill_hours")
    assert {spec.key: {dep.asset_key for dep in spec.deps} for spec in backfills.assets[0].specs} == {
        ORDERS: set(),
        UNIQUE: {ORDERS},
    }
    assert set(backfills.assets[1].keys) == {AssetKey(["backfill", "shop", "hourly"])}
    # The partitions of all days begin with the earliest, or Dagster would not select them together.
    assert {graph.get(key).partitions_def.get_first_partition_key() for key in (ORDERS, UNIQUE)} == {
        "2025-06-01"
    }
    assert graph.get(ORDERS).partitions_def.has_partition_key(f"{datetime.now(UTC):%Y-%m-%d}"), (
        "today, so far"
    )
    assert all(asset.backfill_policy.max_partitions_per_run is None for asset in backfills.assets)
    assert {spec.group_name for asset in backfills.assets for spec in asset.specs} == {"shop__backfill"}


def test_the_own_assets_have_no_partitions_and_nothing_reads_the_others(target):
    pipeline = shop()
    defs = Definitions(
        assets=[streaming_assets(pipeline), *partitioned(pipeline).assets],
        resources=streaming_resources(target),
    )
    graph = defs.resolve_asset_graph()
    for stream in pipeline:
        node = graph.get(AssetKey(["shop", stream.name.stream]))
        assert node.partitions_def is None
        assert not [key for key in node.child_keys | node.parent_keys if key.path[0] == "backfill"]
    assert not [key for key in graph.materializable_asset_keys if graph.get(key).automation_condition]


@pytest.mark.parametrize(
    ("every", "begin", "end", "span"),
    [
        ("day", DAY, DAY + timedelta(days=3), ("2026-01-01", "2026-01-04")),
        ("hour", DAY, DAY + timedelta(hours=25), ("2026-01-01T00:00", "2026-01-02T01:00")),
    ],
)
def test_a_range_of_partitions_is_a_range_of_values(every, begin, end, span):
    assert span_of(TimeWindow(begin, end), every) == span


@pytest.fixture
def replays(monkeypatch) -> list[tuple]:
    """Replay nothing; returns what each call was asked for."""
    asked = []

    def carried_out(spec, pipeline, config, _):
        assert spec is BACKFILL
        selection, span = config["selection"], (config["begin"], config["end"])
        asked.append((sorted(selection), span, config["downstream"]))
        names = sorted([*selection, *(["shop/plain", "shop/unique"] if config["downstream"] else [])])
        for stream in (stream for stream in pipeline if str(stream.name) in names):
            yield Done(stream.name, "It is done.", {"tidemill/rows_added": 1})

    monkeypatch.setattr("tidemill.orchestration.jobs.backfill_partitions.carried_out", carried_out)
    return asked


def test_one_run_replays_the_selected_streams_over_the_whole_range(replays, target, instance):
    (days, _) = partitioned(shop()).assets
    tags = {START: "2026-01-02", END: "2026-01-04"}
    result = materialize([days], instance=instance, resources=streaming_resources(target), tags=tags)
    assert replays == [(["shop/orders", "shop/unique"], ("2026-01-02", "2026-01-05"), False)]
    wanted = {(key, f"2026-01-0{day}", 1): 1 for key in (ORDERS, UNIQUE) for day in (2, 3, 4)}
    assert partitions_of(result) == wanted
    assert instance.get_run_by_id(result.run_id).tags["tidemill/pipeline"] == "shop"


def test_readers_that_are_replayed_as_well_are_recorded(replays, target, instance):
    (days, _) = partitioned(shop()).assets
    result = materialize(
        [days],
        selection=[ORDERS],
        partition_key="2026-01-02",
        instance=instance,
        resources=streaming_resources(target),
        run_config={"ops": {"shop__replay_days": {"config": {"downstream": True}}}},
    )
    assert replays == [(["shop/orders"], ("2026-01-02", "2026-01-03"), True)]
    assert partitions_of(result) == {(key, "2026-01-02", 1): 1 for key in (ORDERS, UNIQUE)}
    observed = {event.asset_key.to_user_string() for event in result.get_asset_observation_events()}
    assert observed == {"shop/orders", "shop/unique", "shop/plain"}


def test_a_job_over_all_assets_replays_nothing(replays, target, instance):
    backfills = partitioned(shop())
    everything = define_asset_job("everything", AssetSelection.all())
    defs = Definitions(assets=backfills.assets[:1], jobs=[everything], resources=streaming_resources(target))
    result = defs.resolve_job_def("everything").execute_in_process(instance=instance)
    assert result.success
    assert (replays, partitions_of(result)) == ([], Counter())


def events_of(day: int) -> list[dict]:
    moment = DAY + timedelta(days=day)
    return [
        {"id": 10 * day + n, "amount": n, "at": (moment + timedelta(hours=n)).isoformat()}
        for n in range(1, 6)
    ]


def expected(days: range, *, changed: tuple[int, ...] = (), least: int = 0) -> Counter:
    return multiset(
        (event["id"], event["amount"])
        for day in days
        for event in events_of(day)
        if event["amount"] > (least if day in changed else 0)
    )


def test_a_run_over_two_days_replaces_them_and_no_other_day(target, engine, instance, monkeypatch):
    monkeypatch.setattr(SparkResource, "engine", property(lambda _: engine))
    scratch = Scratch(target.lake, target.default_binding, engine)
    before, now = shop(), shop(least=3)
    for day in range(4):
        scratch.drop_file("orders", events_of(day))
    assert [result.error for result in scratch.run_all([before["orders"], before["unique"]])] == [None, None]

    result = materialize(
        [partitioned(now).assets[0]],
        instance=instance,
        resources=streaming_resources(target),
        tags={START: "2026-01-02", END: "2026-01-03"},
    )

    for name in ("orders", "unique"):
        assert scratch.rows(now[name], "id", "amount") == expected(range(4), changed=(1, 2), least=3)
        (operation,) = StreamRecords(target.lake, now[name].name).operations()
        assert (operation.arguments["begin"], operation.arguments["end"]) == ("2026-01-02", "2026-01-04")
        key = AssetKey(["backfill", "shop", name])
        events = [e for e in result.get_asset_materialization_events() if e.asset_key == key]
        assert [event.partition for event in events] == ["2026-01-02", "2026-01-03"]
        for event in events:
            metadata = event.step_materialization_data.materialization.metadata
            numbers = {
                f"tidemill/rows_{what}": metadata[f"tidemill/rows_{what}"].value
                for what in ("before", "after", "added", "removed")
            }
            assert list(numbers.values()) == [10, 4, 0, 6]
            assert metadata["tidemill/operation"].value == operation.id
            assert metadata["tidemill/code"].value == operation.result["code"]
            assert metadata["tidemill/command"].value == operation.command
