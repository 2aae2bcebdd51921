"""Each check is green on a healthy lake, and red, with what and where, on a copy that was damaged for it."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.checks.checks_lake import (
    NOW,
    CheckLake,
    arrivals,
    flip,
    order,
    orders,
    shop,
    unique,
    without_version,
)
from tests.support.leases import held
from tests.support.raising import raises
from tidemill import Checks, DeltaAppend, DeltaMerge, DeltaOverwrite, Pipeline, QueryOptions, StateBounds
from tidemill.checks.evaluation import evaluate
from tidemill.operations.edits.accept import accept_findings
from tidemill.records.batch import BatchRecord, Late
from tidemill.run.execute.results import StreamResult

RUNS = 3
ORDERS_CHECKS = {"checkpoint_sound", "exactly_once", "backlog", "quarantine", "small"}
UNIQUE_CHECKS = {"checkpoint_sound", "exactly_once", "watermark", "late_rows", "state_bounded", "backlog"}


@pytest.fixture(scope="module")
def lakes(engine, tmp_path_factory):
    """The lake of three healthy runs, and of one run more: with an event of the future, refused, or half read."""
    root = tmp_path_factory.mktemp("checks")
    healthy = CheckLake(root / "healthy")
    scratch = healthy.scratch(engine)
    for run in range(RUNS):
        scratch.drop_file("orders", arrivals(run))
        for result in scratch.run_all(shop):
            assert result.outcome == "updated", result.error
    lakes = {"healthy": healthy}
    for name, records, streams in (
        ("future", [order(90, at=NOW + timedelta(days=30))], shop),
        ("refused", ['{"order": 1}', "no json"] * 15, [orders]),
        ("behind", [order(91, at=NOW - timedelta(hours=2))], [orders]),
    ):
        lakes[name] = healthy.copy(root / name)
        scratch = lakes[name].scratch(engine)
        scratch.drop_file("orders", records)
        for result in scratch.run_all(streams):
            assert result.outcome == "updated", result.error
    return lakes


@pytest.fixture
def lake(lakes, tmp_path):
    """A copy of the healthy lake."""
    return lakes["healthy"].copy(tmp_path / "copy")


def one_more(lakes, name, tmp_path) -> CheckLake:
    return lakes[name].copy(tmp_path / name)


def status(result) -> tuple[str, str]:
    return result.status, " ".join(result.summary.split())


def test_all_checks_of_healthy_runs_pass(lake):
    for stream, names in ((orders, ORDERS_CHECKS - {"small"}), (unique, UNIQUE_CHECKS)):
        results = lake.check(stream)
        assert {name: result.status for name, result in results.items() if name != "small"} == dict.fromkeys(
            names, "pass"
        ), {result.name: result.summary for result in results.values() if not result.passed}


def test_an_expectation_counts_the_violations_of_the_newest_run(lake):
    result = lake.check(orders, "small")
    assert (result.status, result.numbers["violations"]) == ("warn", 1)


def test_the_numbers_of_exactly_once_add_up(lake):
    numbers = lake.check(orders, "exactly_once").numbers
    assert numbers["batches_compared"] == RUNS
    assert numbers["rows_read"] == RUNS * 6
    assert numbers["rows_quarantined"] == numbers["rows_dropped"] == numbers["rows_blank"] == RUNS
    assert numbers["rows_committed"] == RUNS * (6 - 1 - 1) + RUNS  # the quarantine's rows included


def test_a_second_check_compares_only_what_is_new(lake):
    assert lake.check(unique, "exactly_once").numbers["batches_compared"] == 2 * RUNS
    assert lake.check(unique, "exactly_once").numbers["batches_compared"] == 0


def test_all_checks_pass_for_every_kind_of_sink(scratch):
    kinds = Pipeline("kinds")
    feed = orders.sources["events"]
    more = [DeltaAppend(name="copy"), DeltaMerge(keys=["id"], sequence_by="n", name="newest"), DeltaAppend()]
    several = kinds.stream(source=feed, sink=more, name="several")(lambda events: events)
    replaced = kinds.stream(
        source=several, sink=DeltaOverwrite(), name="replaced", query=QueryOptions(output_mode="complete")
    )(lambda rows: rows.groupBy("id").count())
    for run in range(2):
        scratch.drop_file("orders", arrivals(run))
        for result in scratch.run_all(kinds):
            assert result.outcome == "updated", result.error
        for stream in (several, replaced):
            results = evaluate(stream, scratch.target, datetime.now(UTC))
            assert {check.name: check.summary for check in results if not check.passed} == {}
            (compared,) = (check for check in results if check.name == "exactly_once")
            assert compared.numbers["batches_compared"] == 1


# checkpoint_sound


@pytest.mark.parametrize("name", ["metadata", "offsets/5", "commits/5"])
def test_a_flipped_byte_in_the_newest_logs_is_found(lake, name):
    flip(lake.checkpoint(unique) / name)
    results = lake.check(unique)
    assert results["checkpoint_sound"].status == "error"
    assert name in results["checkpoint_sound"].summary


def test_a_flipped_digit_that_still_parses_is_found_by_the_checksum(lake):
    path = lake.checkpoint(unique) / "commits/5"
    path.write_text(path.read_text()[:-2] + "9}")
    verdict, summary = status(lake.check(unique, "checkpoint_sound"))
    assert verdict == "error"
    assert "commits/5" in summary
    assert "checksums" in summary


def test_a_flipped_byte_in_the_state_fails_the_checkpoint(lake):
    state = lake.checkpoint(unique) / "state/0/0"
    flip(max(state.glob("*.changelog"), key=lambda path: int(path.stem)), -20)
    verdict, summary = status(lake.check(unique, "checkpoint_sound"))
    assert verdict == "error"
    assert f"state/0/0/{2 * RUNS}.changelog" in summary


@pytest.mark.campaign
def test_a_flipped_byte_in_a_snapshot_of_the_state_fails_the_checkpoint_where_no_other_one_is_left(scratch):
    each_batch = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "1"}
    snapshots = replace(unique, query=QueryOptions(shuffle_partitions=2, options=each_batch))
    for run in range(2):
        scratch.drop_file("orders", arrivals(run))
        for stream in (orders, snapshots):
            scratch.run(stream)
    state = Path(scratch.lake.checkpoint(unique.name, 1).uri()) / "state/0/0"
    newest, *older = sorted(state.glob("*.zip"), key=lambda path: int(path.stem), reverse=True)

    def check():
        (found,) = evaluate(snapshots, scratch.target, datetime.now(UTC), names=("checkpoint_sound",))
        return status(found)

    flip(newest)
    verdict, summary = check()
    assert verdict == "pass"
    assert f"state/0/0/{newest.name}" in summary
    assert "Spark falls back" in summary
    for path in (*older, *state.glob("*.changelog")):
        path.unlink()
    assert check()[0] == "error"


def test_truncated_offsets_fail_the_checkpoint(lake):
    offsets = lake.checkpoint(unique) / f"offsets/{2 * RUNS - 1}"
    offsets.write_bytes(offsets.read_bytes()[:40])
    results = lake.check(unique)
    verdict, summary = status(results["checkpoint_sound"])
    assert verdict == "error"
    assert f"offsets/{2 * RUNS - 1}" in summary
    assert {result.status for name, result in results.items() if name != "checkpoint_sound"} == {"unknown"}


def test_removed_commits_fail_the_checkpoint(lake):
    for batch in (4, 5):
        (lake.checkpoint(unique) / f"commits/{batch}").unlink()
        (lake.checkpoint(unique) / f"commits/.{batch}.crc").unlink()
    lake.check(unique, "exactly_once")
    assert "Batches 4 to 5 have offsets and no commit" in lake.check(unique, "checkpoint_sound").summary


def test_a_table_that_was_rolled_back_fails_the_checkpoint_and_exactly_once(lake):
    lake.check(orders)
    without_version(lake.log(orders), RUNS)
    verdict, summary = status(lake.check(orders, "checkpoint_sound"))
    assert verdict == "error"
    assert "the newest batch in the table is 1" in summary
    verdict, summary = status(lake.check(orders, "exactly_once"))
    assert verdict == "error"
    assert "orders ends at version 2, and version 3 existed at the last check" in summary


def test_a_table_of_another_query_fails_the_checkpoint(lake):
    shutil.rmtree(Path(lake.lake.table(orders.name).uri))
    shutil.copytree(Path(lake.lake.table(unique.name).uri), Path(lake.lake.table(orders.name).uri))
    verdict, summary = status(lake.check(orders, "checkpoint_sound"))
    assert verdict == "error"
    assert "is not the table that the checkpoint was written with" in summary


def test_a_setting_that_the_checkpoint_keeps_otherwise_is_a_warning(lake):
    declared = replace(unique, query=replace(unique.query, shuffle_partitions=3))
    result = lake.check(declared, "checkpoint_sound")
    assert result.status == "warn"
    assert "shuffle_partitions is declared as 3 and the checkpoint keeps 2" in result.summary


def test_a_stream_that_runs_is_not_judged_by_half_written_files(lake):
    state = lake.checkpoint(unique) / "state/0/1"
    shutil.copy(state / "6.changelog", state / "9.changelog")
    assert lake.check(unique, "state_bounded").status == "error"
    with held(lake.records(unique).control.below("lease"), unique.name, "run-8"):
        assert lake.check(unique, "state_bounded").passed
    (lake.checkpoint(unique) / "offsets/6").write_text("v2\n")
    assert lake.check(unique, "checkpoint_sound").status == "error"
    with held(lake.records(unique).control.below("lease"), unique.name, "run-9"):
        for name in ("checkpoint_sound", "exactly_once", "watermark", "state_bounded"):
            result = lake.check(unique, name)
            assert result.status in ("pass", "unknown"), result


# exactly_once


@pytest.mark.parametrize("examined", [False, True], ids=["first-check", "later-check"])
def test_a_duplicate_batch_without_a_transaction_is_found(lake, examined):
    if examined:
        lake.check(orders)
    table = DeltaTable(str(lake.lake.table(orders.name)))
    twice = table.to_pyarrow_table(filters=[("n", "=", 1)]).slice(0, 3)
    write_deltalake(table, twice, mode="append")
    verdict, summary = status(lake.check(orders, "exactly_once"))
    assert verdict == "error"
    assert "Version 4 of orders (WRITE" in summary
    assert "belongs to no batch of the stream" in summary
    assert "tidemill accept shop/orders --findings" in summary


@pytest.mark.parametrize("examined", [False, True], ids=["first-check", "later-check"])
def test_a_batch_that_was_committed_twice_is_found(lake, examined):
    if examined:
        lake.check(orders)
    table = DeltaTable(str(lake.lake.table(orders.name)))
    rows = table.to_pyarrow_table().slice(0, 2)
    app_id = lake.records(orders).snapshot().query_id
    properties = CommitProperties(app_transactions=[Transaction(app_id, 1)])
    write_deltalake(table, rows, mode="append", commit_properties=properties)
    verdict, summary = status(lake.check(orders, "exactly_once"))
    assert verdict == "error"
    assert ("has batch 1 again" if examined else "both have batch 1") in summary


def test_a_duplicate_in_a_quarantine_is_found(lake):
    table = DeltaTable(str(lake.lake.quarantine(orders.name)))
    write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")
    assert "of orders__quarantine" in lake.check(orders, "exactly_once").summary


def test_a_version_that_is_missing_in_the_log_is_found(lake):
    without_version(lake.log(orders), 2)
    verdict, summary = status(lake.check(orders, "exactly_once"))
    assert verdict == "error"
    assert "Version 2 is missing in the log of orders" in summary
    assert "Batch 1 is committed in the checkpoint, and no version of orders has it" in summary


def test_a_table_that_was_restored_to_an_older_version_is_found(lake):
    lake.check(orders)
    DeltaTable(str(lake.lake.table(orders.name))).restore(1)
    verdict, summary = status(lake.check(orders, "exactly_once"))
    assert verdict == "error"
    assert "Version 4 of orders (RESTORE" in summary


def test_batches_of_an_earlier_generation_are_not_foreign(lake):
    table = DeltaTable(str(lake.lake.table(orders.name)))
    properties = CommitProperties(app_transactions=[Transaction("earlier", 0)])
    write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append", commit_properties=properties)
    assert "(transaction earlier 0)" in lake.check(orders, "exactly_once").summary
    manifest = lake.records(orders).manifest()
    earlier = replace(manifest.active, number=0, query_id="earlier")
    lake.records(orders).write_manifest(replace(manifest, generations=(earlier, manifest.active)))
    assert lake.check(orders, "exactly_once").passed


def test_a_batch_that_was_repeated_after_a_kill_is_in_order(lake, engine):
    # As a kill between the quarantine and the main table leaves it.
    (lake.checkpoint(orders) / f"commits/{RUNS - 1}").unlink()
    (lake.checkpoint(orders) / f"commits/.{RUNS - 1}.crc").unlink()
    without_version(lake.log(orders), RUNS)
    edited(lake, orders, RUNS - 1, lambda _: None)
    manifest = lake.records(orders).manifest()
    lake.records(orders).write_manifest(manifest.with_active(ledger_batch=RUNS - 2))
    (result,) = lake.scratch(engine).run_all([orders])
    assert result.outcome == "updated", result.error
    assert len(list(lake.log(orders, "quarantine").glob("*.json"))) == RUNS + 1
    assert lake.check(orders, "exactly_once").passed


def test_a_compaction_changes_no_rows(lake):
    lake.check(orders)
    DeltaTable(str(lake.lake.table(orders.name))).optimize.compact()
    assert lake.check(orders, "exactly_once").passed


def test_offsets_that_skip_a_version_are_a_gap(lake):
    path = lake.checkpoint(unique) / "offsets/4"
    path.write_text(path.read_text().replace('"reservoirVersion":4', '"reservoirVersion":5'))
    verdict, summary = status(lake.check(unique, "exactly_once"))
    assert verdict == "error"
    assert "offsets/4 has version 5 in orders, and the batch ended at version 4" in summary


def edited(lake, stream, batch, change):
    """Rewrite the ledger's line of a batch; a change of None removes it."""
    for path in lake.ledger_lines(stream):
        lines = []
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if line["batch_id"] == batch:
                line = change(line)
            lines += [] if line is None else [json.dumps(line)]
        path.write_text("\n".join(lines) + "\n")


def test_a_missing_line_of_the_ledger_is_found(lake):
    edited(lake, orders, 1, lambda _: None)
    verdict, summary = status(lake.check(orders, "exactly_once"))
    assert verdict == "error"
    assert "The ledger has no line of the committed batch 1" in summary
    assert status(lake.check(orders, "exactly_once")) == (verdict, summary), "it stays until it is fixed"


def test_two_lines_of_a_batch_are_found(lake):
    first, second = lake.ledger_lines(orders)[:2]
    second.write_text(second.read_text() + first.read_text())
    assert "The ledger has two lines of batch 0" in lake.check(orders, "exactly_once").summary


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("rows_written", "rows written"),
        ("rows_read", "records read"),
        ("rows_quarantined", "Batch 1 refused 2 records, and its commit in orders__quarantine has 1"),
        ("delta_version", "Delta version"),
        ("rows_out", "left the function"),
    ],
)
def test_a_count_that_differs_from_the_log_is_found(lake, field, text):
    edited(lake, orders, 1, lambda line: {**line, field: line[field] + 1})
    assert text in lake.check(orders, "exactly_once").summary


def test_rows_that_the_table_upstream_does_not_have_were_read_twice(lake):
    edited(lake, unique, 2, lambda line: {**line, "rows_read": line["rows_read"] + 1})
    summary = lake.check(unique, "exactly_once").summary
    assert "Batch 2 read 5 rows from a range of 4" in summary


def test_rows_that_were_not_read_are_found(lake):
    edited(lake, unique, 2, lambda line: {**line, "rows_read": line["rows_read"] - 1})
    assert "from a range of 4, and the range has more" in lake.check(unique, "exactly_once").summary


def test_ranges_that_do_not_join_are_a_gap_or_an_overlap(lake):
    def later(line):
        start = {**line["start_offsets"]["orders"], "reservoirVersion": 1}
        return {**line, "start_offsets": {"orders": start}, "reconstructed": True}

    edited(lake, unique, 2, later)
    summary = lake.check(unique, "exactly_once").summary
    assert "Batch 2 begins in orders at version 1, and the batch before ended at version 2" in summary
    assert "read twice" in summary


def test_a_commit_whose_count_is_not_that_of_its_files_is_found(lake):
    path = lake.log(unique) / f"{1:020d}.json"
    path.write_text(path.read_text().replace('"numOutputRows":"3"', '"numOutputRows":"2"'))
    assert "have 3 rows, and its commit states 2" in lake.check(unique, "exactly_once").summary


def test_lines_that_a_killed_run_left_out_are_a_warning(lake):
    manifest = lake.records(orders).manifest()
    lake.records(orders).write_manifest(manifest.with_active(ledger_batch=1))
    result = lake.check(orders, "exactly_once")
    assert result.status == "warn"
    assert "no line of 1 committed batch" in result.summary


def test_findings_that_are_accepted_are_not_found_again_and_later_ones_are(lake):
    target = lake.scratch().target
    with raises("nothing-to-change"):
        accept_findings(orders, target)
    table = DeltaTable(str(lake.lake.table(orders.name)))
    rows = table.to_pyarrow_table().slice(0, 1)
    write_deltalake(table, rows, mode="append")
    planned = accept_findings(orders, target, dry_run=True)
    assert "Version 4 of orders (WRITE" in planned.effects[0]
    assert lake.check(orders, "exactly_once").status == "error"
    accept_findings(orders, target)
    assert lake.check(orders, "exactly_once").passed
    write_deltalake(table, rows, mode="append")
    assert "Version 5 of orders" in lake.check(orders, "exactly_once").summary


# watermark


def test_a_future_event_is_named_with_its_origin(lakes, tmp_path):
    lake = one_more(lakes, "future", tmp_path)
    verdict, summary = status(lake.check(unique, "watermark"))
    assert verdict == "error"
    assert "in the future: batch 6 moved it there, by the event at" in summary
    assert "in shop/orders, from the file file:" in summary
    assert "landing/orders/000004.json" in summary


def test_without_the_table_the_batch_of_a_future_event_is_named(lakes, tmp_path):
    lake = one_more(lakes, "future", tmp_path)
    shutil.rmtree(Path(lake.lake.table(orders.name).uri))
    assert "by an event that batch 6 read" in lake.check(unique, "watermark").summary


def test_a_watermark_that_goes_back_is_found(lake):
    path = lake.checkpoint(unique) / "offsets/3"
    header = json.loads(path.read_text().splitlines()[1])
    earlier = {**header, "batchWatermarkMs": header["batchWatermarkMs"] - 7_200_000}
    dumped = [json.dumps(fields, separators=(",", ":")) for fields in (header, earlier)]
    path.write_text(path.read_text().replace(*dumped))
    verdict, summary = status(lake.check(unique, "watermark"))
    assert verdict == "error"
    assert "in offsets/3" in summary


def test_a_watermark_ahead_of_the_events_is_found(lake):
    path = lake.checkpoint(unique) / "commits/5"
    moved = int((NOW - timedelta(minutes=5)).timestamp() * 1000)
    path.write_text(f'v1\n{{"nextBatchWatermarkMs":{moved}}}')
    verdict, summary = status(lake.check(unique, "watermark"))
    assert verdict == "error"
    assert "commits/5 is not what the batch wrote" in summary


def test_a_watermark_that_is_far_behind_is_a_warning(lake):
    assert lake.check(unique, "watermark", checks=Checks(watermark_lag="6 hours")).passed
    result = lake.check(unique, "watermark", checks=Checks(watermark_lag="1 hour"))
    assert result.status == "warn"
    assert result.numbers["watermark_lag_bound_seconds"] == 3600


# state_bounded


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (StateBounds(rows=1), "rows in state, more than 1"),
        (StateBounds(bytes=10), "more than 10"),
        (StateBounds(growth=0.1), "The rows in state grew by"),
        (StateBounds(snapshot_batches=2), "The newest snapshot of a store is 6 batches old"),
    ],
)
def test_a_state_over_a_declared_bound_is_a_warning(lake, bounds, text):
    # The deduplication keeps ids for an hour, so that of each run only its own are left.
    edited(lake, unique, 3, lambda line: {**line, "state_rows": 1})
    result = lake.check(unique, "state_bounded", checks=Checks(state=bounds))
    assert result.status == "warn"
    assert text in result.summary


def test_a_state_version_of_another_checkpoint_is_found(lake):
    store = lake.checkpoint(unique) / "state/0/1"
    shutil.copy(store / "6.changelog", store / "9.changelog")
    verdict, summary = status(lake.check(unique, "state_bounded"))
    assert verdict == "error"
    assert "state/0/1 has version 9 of the state, and the newest batch leads to version 6" in summary


def test_a_partition_of_another_checkpoint_is_found(lake):
    state = lake.checkpoint(unique) / "state/0"
    shutil.copytree(state / "1", state / "2")
    assert "state/0/2 is of a partition" in lake.check(unique, "state_bounded").summary


# backlog


def test_a_stream_that_is_stuck_is_found(lake):
    lake.scratch().drop_file("orders", [order(99, at=NOW)])
    waits = lake.check(orders, "backlog")
    assert (waits.status, waits.numbers["backlog_files"]) == ("pass", 1)
    verdict, summary = status(lake.check(orders, "backlog", now=datetime.now(UTC) + timedelta(hours=25)))
    assert verdict == "error"
    assert summary.startswith("1 file in events waits, and since ")
    assert "is stuck" in summary


def test_a_backlog_over_its_bound_is_a_warning_until_it_falls(lake):
    few = Checks(backlog={"files": 1})
    for number in range(3):
        lake.scratch().drop_file("orders", [order(number, at=NOW)])
    assert lake.check(orders, "backlog", checks=few).status == "warn"
    (lake.root / "landing/orders/000006.json").unlink()
    falling = lake.check(orders, "backlog", checks=few)
    assert (falling.status, falling.numbers["backlog_files"]) == ("pass", 2)
    assert lake.check(orders, "backlog", checks=few).status == "warn"


def test_the_cleanup_of_a_log_that_is_about_to_remove_unread_commits_is_found(lakes, tmp_path):
    lake = one_more(lakes, "behind", tmp_path)
    checks = Checks(stuck_after="365 days")
    soon = datetime.now(UTC) + timedelta(days=29)
    assert lake.check(unique, "backlog", now=soon - timedelta(hours=1), checks=checks).passed
    verdict, summary = status(lake.check(unique, "backlog", now=soon, checks=checks))
    assert verdict == "error"
    assert "the retention of 30 days may remove version 4 (delta.logRetentionDuration), which is unread" in (
        summary
    )
    later = replace(checks, retention_margin="6 hours")
    assert lake.check(unique, "backlog", now=soon, checks=later).passed


def test_a_vacuum_that_would_remove_unread_files_is_found(lakes, tmp_path):
    lake = one_more(lakes, "behind", tmp_path)
    checks = Checks(stuck_after="365 days")
    week = datetime.now(UTC) + timedelta(days=6, hours=12)
    assert lake.check(unique, "backlog", now=week, checks=checks).passed
    DeltaTable(str(lake.lake.table(orders.name))).optimize.compact()
    verdict, summary = status(lake.check(unique, "backlog", now=week, checks=checks))
    assert verdict == "error"
    assert "a file of version 4, by VACUUM (delta.deletedFileRetentionDuration)" in summary


def test_a_stream_that_has_read_everything_needs_no_retention(lake):
    result = lake.check(unique, "backlog", now=datetime.now(UTC) + timedelta(days=300))
    assert (result.status, result.numbers["retention_seconds_left"]) == ("pass", None)


def test_a_source_that_is_missing_fails_with_its_error(lake):
    shutil.rmtree(lake.root / "landing/orders")
    verdict, summary = status(lake.check(orders, "backlog"))
    assert verdict == "error"
    assert "there is no folder" in summary


# quarantine, late_rows, freshness


def test_a_feed_of_which_all_records_are_refused_is_an_error(lakes, tmp_path):
    lake = one_more(lakes, "refused", tmp_path)
    verdict, summary = status(lake.check(orders, "quarantine"))
    assert verdict == "error"
    assert "30 records of 30 went to quarantine" in summary
    assert "landing/orders/000004.json" in summary


def test_one_refused_record_that_arrives_alone_is_judged_with_those_before_it(lake):
    batch = BatchRecord(
        batch_id=RUNS, run_id="r", generation=1, query_id="q", started_at="", rows_read=1, rows_quarantined=1
    )
    result = StreamResult(stream=orders.name, outcome="updated", batches=(batch,))
    alone = lake.check(orders, "quarantine", result=result)
    assert alone.passed
    assert alone.summary == f"{RUNS + 1} records of {RUNS * 6 + 1} went to quarantine in the newest runs."


def test_a_declared_share_of_refused_records_is_an_error(lake):
    assert lake.check(orders, "quarantine", checks=Checks(quarantine_share=0.2)).passed
    result = lake.check(orders, "quarantine", checks=Checks(quarantine_share=0.1))
    assert result.status == "error"
    assert "violate 'has_id'" in result.summary


def test_a_share_of_late_rows_over_the_bound_is_a_warning(lake):
    batch = BatchRecord(
        batch_id=6, run_id="r", generation=1, query_id="q", started_at="", rows_read=10, late=Late(6)
    )
    result = StreamResult(stream=unique.name, outcome="updated", batches=(batch,))
    late = lake.check(unique, "late_rows", result=result)
    assert (late.status, late.numbers["late_share"]) == ("warn", 0.6)
    assert lake.check(unique, "late_rows", result=result, checks=Checks()).passed


@pytest.mark.parametrize("event_time", [None, "at"])
def test_an_old_newest_event_is_not_fresh_though_the_stream_ran(lake, event_time):
    checks = Checks(freshness="1 day", event_time=event_time)
    assert lake.check(unique, "freshness", checks=checks).passed
    old = lake.check(unique, "freshness", checks=checks, now=datetime.now(UTC) + timedelta(days=1))
    assert old.status == "error"
    assert old.numbers["event_age_seconds"] > 86_400


def test_a_future_event_does_not_make_a_table_fresh(lakes, tmp_path):
    lake = one_more(lakes, "future", tmp_path)
    result = lake.check(orders, "freshness", checks=Checks(freshness="1 day", event_time="at"))
    assert result.status == "error"
    assert "in the future" in result.summary


def test_a_declared_severity_replaces_that_of_the_check(lake):
    checks = Checks(freshness="1 hour", event_time="at", severity={"freshness": "warn"})
    assert lake.check(orders, "freshness", checks=checks).status == "warn"


def test_what_no_check_can_evaluate_is_a_result(lake, monkeypatch):
    monkeypatch.setattr("tidemill.checks.event_times.history", lambda _: 1 / 0)
    result = lake.check(unique, "watermark")
    assert (result.status, result.passed) == ("unknown", False)
    assert "ZeroDivisionError" in result.summary


def test_a_lake_that_can_only_be_read_is_checked_from_its_kept_batches_each_time(lake, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr("tidemill.records.stream_records.StreamRecords.write_checked", refuse)
    for _ in range(2):
        assert lake.check(orders, "exactly_once").numbers["batches_compared"] == RUNS
