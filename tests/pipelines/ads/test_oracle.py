import json
import os
from collections import Counter
from pathlib import Path

import pytest

from pipelines import ads
from pipelines.ads.generate import generate
from tests.pipelines.ads import edges, oracle
from tests.pipelines.ads.plain_spark import PlainSpark, as_table

ROWS_OF = {"unique_impressions": "impressions", "unique_clicks": "clicks"}


def good_rows(stream: str, landing: Path, earlier: Counter) -> list:
    """Return the rows of an ingest stream that are not in `earlier`, and count them there."""
    lines = oracle.records_of(landing)[oracle.FEED_OF[stream]]
    new = oracle.parse(stream, lines[earlier[stream] :])[0]
    earlier[stream] = len(lines)
    return new


def run_and_record(plain: PlainSpark, rows: dict[str, list], earlier: Counter) -> None:
    for stream, source in ROWS_OF.items():
        rows[stream].append(good_rows(source, plain.landing, earlier))
    plain.run()


def tables_of_spark_and_of_the_oracle(
    plain: PlainSpark, rows: dict[str, list]
) -> tuple[dict, oracle.Expected]:
    batches = {stream: plain.batches(stream, rows[stream]) for stream in ROWS_OF}
    made = {table: plain.table(table) for table in oracle.COLUMNS}
    return made, oracle.expected(plain.landing, batches)


@pytest.mark.campaign  # test_pipeline.py makes the same comparison with Tidemill's runner
def test_spark_produces_the_tables_of_the_oracle_with_late_rows(spark, tmp_path):
    plain = PlainSpark(spark, tmp_path / "landing", tmp_path / "tables")
    rows: dict[str, list] = {stream: [] for stream in ROWS_OF}
    earlier: Counter = Counter()

    first = generate(out=plain.landing, events=14_000, seed=11, files=3)
    run_and_record(plain, rows, earlier)
    second = generate(out=plain.landing, events=4_000, seed=11, files=2, start=first.next_start)
    run_and_record(plain, rows, earlier)

    made, expected = tables_of_spark_and_of_the_oracle(plain, rows)
    assert made == expected.tables
    assert expected.late == {"unique_impressions": second.feeds["ad-impressions"].late, "unique_clicks": 0}
    assert all(made.values())


@pytest.mark.campaign  # the same
def test_spark_produces_the_tables_of_the_oracle_at_every_boundary(spark, tmp_path):
    plain = PlainSpark(spark, tmp_path / "landing", tmp_path / "tables")
    rows: dict[str, list] = {stream: [] for stream in ROWS_OF}
    earlier: Counter = Counter()

    edges.write(plain.landing, edges.FIRST_RUN, "1.json")
    run_and_record(plain, rows, earlier)
    edges.write(plain.landing, edges.SECOND_RUN, "2.json")
    run_and_record(plain, rows, earlier)

    made, expected = tables_of_spark_and_of_the_oracle(plain, rows)
    assert made == expected.tables
    assert expected.late == {"unique_impressions": 1, "unique_clicks": 0}


def test_a_row_is_late_by_the_watermark_of_the_previous_batch(spark, tmp_path):
    (tmp_path / "landing").mkdir()
    # The batch of the first sets the watermark to 8:00, which applies from the third batch on.
    for number, hour in enumerate((10, 7, 6)):
        file = tmp_path / "landing" / f"{number}.csv"
        file.write_text(f"imp-{hour},2026-01-01T{hour:02d}:00:00Z\n")
        os.utime(file, (number, number))
    source = spark.readStream.name("rows").schema("impression_id STRING, event_time TIMESTAMP")
    impressions = source.option("maxFilesPerTrigger", "1").csv(str(tmp_path / "landing"))
    made: Counter = Counter()

    query = (
        ads.unique_impressions(impressions.withWatermark("event_time", "2 hours"))
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda rows, _: made.update(as_table(rows, ["impression_id"])))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert made == Counter([("imp-10",), ("imp-7",)])


@pytest.fixture(scope="module")
def landing(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("landing")
    generate(out=folder, events=14_000, seed=3, files=4)
    return folder


ALL_FROM_IMPRESSIONS = {
    "impressions",
    "unique_impressions",
    "attribution",
    "campaign_minutes",
    "campaign_totals",
    "user_sessions",
}
ALL_FROM_CLICKS = {"clicks", "unique_clicks", "attribution"}


@pytest.mark.parametrize(
    ("feed", "column", "value", "noticed_by"),
    [
        ("ad-impressions", "cost_micros", 20_001, ALL_FROM_IMPRESSIONS),
        ("ad-impressions", "cost_micros", -1, ALL_FROM_IMPRESSIONS | {"impressions__quarantine"}),
        ("ad-impressions", "page", "/elsewhere", {"impressions", "unique_impressions", "attribution"}),
        (
            "ad-impressions",
            "event_time",
            "2026-01-01T00:30:30.500Z",
            ALL_FROM_IMPRESSIONS - {"campaign_totals"},
        ),
        ("ad-clicks", "click_time", "2026-01-01T00:30:30.500Z", ALL_FROM_CLICKS),
        ("ad-clicks", "click_id", "another", ALL_FROM_CLICKS),
        (
            "ad-campaigns",
            "campaign_id",
            "another",
            {"campaigns", "attribution", "campaign_minutes", "campaign_totals"},
        ),
        ("ad-campaigns", "op", "pause", None),
    ],
)
def test_the_oracle_notices_one_changed_value(landing, feed, column, value, noticed_by):
    records = oracle.records_of(landing)
    before = oracle.expected(records)
    number = relevant_record(feed, records[feed], before)
    changed = json.loads(records[feed][number]) | {column: value}
    records[feed][number] = json.dumps(changed)

    after = oracle.expected(records)

    tables = {table for table in oracle.COLUMNS if before[table] != after[table]}
    if noticed_by is None:
        assert tables >= {"campaigns", "campaigns__quarantine"}
    else:
        assert tables == noticed_by


def test_the_oracle_notices_one_impression_less_of_an_alert(landing):
    records = oracle.records_of(landing)
    alerts = oracle.expected(records)["frequency_alerts"]
    alert = next(row for row in sorted(alerts) if row[3] == oracle.ALLOWED + 1)
    rows = oracle.parse("impressions", records["ad-impressions"])[0]
    first = next(row[0] for row in rows if (row[2], row[1], row[5]) == (alert[0], alert[1], alert[4]))
    fewer = [line for line in records["ad-impressions"] if f'"{first}"' not in line]

    after = oracle.expected(records | {"ad-impressions": fewer})

    assert alerts - after["frequency_alerts"] == Counter([alert])


def relevant_record(feed: str, lines: list[str], before: oracle.Expected) -> int:
    """Return the number of a record that arrived once and that all tables of its feed depend on."""
    clicked = {row[6]: row for row in before["attribution"] if row[6] is not None and row[8] is not None}
    chosen = next(
        row
        for row in sorted(clicked.values(), key=lambda row: row[5])
        if sum(f'"{row[0]}"' in line for line in lines) < 2
        and sum(f'"{row[6]}"' in line for line in lines) < 2
    )
    wanted = {"ad-impressions": chosen[0], "ad-clicks": chosen[6], "ad-campaigns": chosen[1]}[feed]
    return next(number for number, line in enumerate(lines) if f'"{wanted}"' in line)


@pytest.mark.parametrize(
    ("stream", "record"),
    [
        ("impressions", '["a list"]'),
        ("impressions", '{"impression_id": 7}'),
        ("impressions", '{"cost_micros": 1.5}'),
        ("clicks", '{"click_time": ""}'),
        ("clicks", '{"click_time": 1767225600}'),
    ],
)
def test_the_oracle_refuses_input_without_a_rule(stream, record):
    with pytest.raises(oracle.NotDefinedError):
        oracle.parse(stream, [record])


def test_two_different_records_with_one_id_need_batches(tmp_path):
    edges.write(tmp_path, edges.FIRST_RUN, "1.json")
    edges.write(tmp_path, edges.SECOND_RUN, "2.json")

    with pytest.raises(oracle.NotDefinedError, match="forgotten"):
        oracle.expected(tmp_path)
