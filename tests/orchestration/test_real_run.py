"""A small pipeline run by Dagster with a real Spark, next to a batch asset that shares its session."""

from pathlib import Path

import pytest

from tests.support.script_result import script_result
from tests.support.small import small_target

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
CHECKS = ("checkpoint_sound", "exactly_once", "backlog", "quarantine")
# In a process of its own: a JVM lives as long as its process, and the compute logs are the process's.
SCRIPT = """
import json
from pathlib import Path
from dagster import DagsterEventType, DagsterInstance, asset, materialize
from pyspark.sql import functions as F
from tidemill.orchestration.assets.assets import streaming_assets, streaming_resources
from tidemill.operations.registry import OPERATIONS
from tidemill.orchestration.jobs.operation_job import operation_job
from tidemill import DeltaAppend, Expect, Feed, Pipeline, Json
from tidemill.orchestration.spark_resource import SparkResource

case = Pipeline("case")

@case.stream(
    source=Feed("numbers", Json("n INT"), rules={"known": "n IS NOT NULL"}),
    sink=DeltaAppend(),
    expect=[Expect("small", "n < 3", on_violation="drop")],
)
def numbers(events):
    return events

@case.stream(source=numbers, sink=DeltaAppend())
def broken(numbers):
    return numbers.withColumn("n", F.expr("CASE WHEN n > 0 THEN CAST(raise_error('no way') AS INT) END"))

@case.stream(source=broken, sink=DeltaAppend())
def after(broken):
    return broken

@asset(deps=[["case", "numbers"]])
def report(spark: SparkResource) -> None:
    # The JVM that ran the streams: no second one, and the table is there without Delta set up again.
    assert spark.spark_session.sparkContext.applicationId
    total = spark.read("case/numbers").agg(F.sum("n")).first()[0]
    print("the total is", total, flush=True)

def run(instance, selection):
    result = materialize(
        [streaming_assets(case), report],
        resources=streaming_resources(),
        selection=selection,
        instance=instance,
        raise_on_error=False,
    )
    return {
        "success": result.success,
        "materialized": {
            event.asset_key.to_user_string(): {
                name: value.value
                for name, value in event.materialization.metadata.items()
                if isinstance(value.value, int | float | str | dict)
            }
            for event in result.get_asset_materialization_events()
        },
        "columns": {
            event.asset_key.to_user_string(): [
                column.name
                for column in event.materialization.metadata["dagster/column_schema"].value.columns
            ]
            for event in result.get_asset_materialization_events()
            if "dagster/column_schema" in event.materialization.metadata
        },
        "lineage": {
            column: [[dep.asset_key.to_user_string(), dep.column_name] for dep in deps]
            for event in result.get_asset_materialization_events()
            if "dagster/column_lineage" in event.materialization.metadata
            for column, deps in event.materialization.metadata["dagster/column_lineage"].value.deps_by_column.items()
        },
        "observed": [event.asset_key.to_user_string() for event in result.get_asset_observation_events()],
        "checks": {
            "/".join([*check.asset_key.path, check.check_name]): check.passed
            for check in result.get_asset_check_evaluations()
        },
        "failures": [
            event.step_failure_data.user_failure_data.description
            for event in result.all_events
            if event.is_step_failure
        ],
        "logs": logs(instance, result),
    }

def logs(instance, result):
    (key,) = (
        event.event_specific_data.file_key
        for event in result.all_events
        if event.event_type == DagsterEventType.LOGS_CAPTURED
    )
    captured = instance.compute_log_manager.get_log_data([result.run_id, "compute_logs", key])
    return (captured.stdout or b"").decode() + (captured.stderr or b"").decode()

def job(instance, job, **config):
    (op,) = (node.name for node in job.nodes)
    result = job.execute_in_process(
        run_config={"ops": {op: {"config": config}}},
        instance=instance,
        resources=streaming_resources(),
        raise_on_error=False,
    )
    observed = {
        event.asset_key.to_user_string(): {
            name: value.value for name, value in event.asset_observation_data.asset_observation.metadata.items()
        }
        for event in result.get_asset_observation_events()
    }
    failures = [
        event.step_failure_data.user_failure_data.description for event in result.all_events if event.is_step_failure
    ]
    return observed, failures

jobs = {kind: operation_job(spec, case, {}) for kind, spec in OPERATIONS.items()}

with DagsterInstance.get() as instance:
    first = run(instance, 'group:"case"')
    Path("landing/numbers/b.json").write_text('{"n": 2}\\n')
    second = run(instance, '+key:"report"')
    third = run(instance, 'key:"case/numbers"')
    replayed = job(instance, jobs["rebuild"], selection=["case/numbers"])
    fourth = run(instance, 'key:"case/numbers"')
    Path("landing/numbers/c.json").write_text('{"n": 0}\\n')
    fifth = run(instance, 'key:"case/numbers"')
    done = [
        job(instance, jobs["rewind"], stream="case/numbers", to_batch=0, dry_run=True),
        job(instance, jobs["rewind"], stream="case/numbers", to_batch=0),
        job(instance, jobs["replay"]),
        job(instance, jobs["prune"], older_than="0s"),
        job(instance, jobs["reset"], stream="case/numbers", start="earliest", table="keep"),
    ]
    sixth = run(instance, 'key:"case/numbers"')
print("RESULT", json.dumps([first, second, third, replayed, fourth, fifth, done, sixth]))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[dict]:
    """A first run, with a stream that fails; one with new rows and a batch asset; one with nothing new."""
    home = tmp_path_factory.mktemp("home")
    (home / "case.py").write_text(SCRIPT)
    (home / "tidemill.toml").write_text(small_target())
    (home / "landing" / "numbers").mkdir(parents=True)
    (home / "landing" / "numbers" / "a.json").write_text('{"n": 1}\n{"n": 2}\n{"n": 5}\noops\n')
    (home / "dagster").mkdir()
    (home / "dagster" / "dagster.yaml").symlink_to(ROOT / "resources" / "dagster" / "dagster.yaml")
    return script_result(
        home / "case.py",
        cwd=home,
        TIDEMILL_CONFIG=str(home / "tidemill.toml"),
        DAGSTER_HOME=str(home / "dagster"),
    )


def test_a_run_reports_in_numbers_what_it_did(runs):
    assert list(runs[0]["materialized"]) == ["case/numbers"]
    numbers = runs[0]["materialized"]["case/numbers"]
    assert numbers["tidemill/rows_read"] == 4
    assert numbers["tidemill/rows_written"] == 2
    assert numbers["tidemill/rows_quarantined"] == 1
    assert numbers["tidemill/rows_dropped"] == 1
    assert numbers["tidemill/batches"] == 1
    assert numbers["tidemill/generation"] == 1
    assert numbers["dagster/row_count"] == 2
    assert numbers["tidemill/end_offsets"] == {"events": {"logOffset": 0}}
    assert 0 < numbers["tidemill/seconds/triggerExecution"] <= numbers["tidemill/seconds"]
    assert runs[0]["columns"]["case/numbers"] == ["n", "_origin", "_batch"]
    assert runs[0]["lineage"]["n"] == [["feed/numbers", "n"]]


def test_the_next_run_continues_and_counts_its_own_rows_only(runs):
    numbers = runs[1]["materialized"]["case/numbers"]
    assert runs[1]["success"]
    assert numbers["tidemill/rows_read"] == 1
    assert numbers["dagster/row_count"] == 3


def test_rules_and_the_checkpoint_are_checks(runs):
    answered = {name: passed for name, passed in runs[0]["checks"].items() if "/numbers/" in name}
    assert answered == {"case/numbers/small": False, **{f"case/numbers/{name}": True for name in CHECKS}}


def test_a_batch_asset_reads_the_table_in_the_same_session(runs):
    assert "report" in runs[1]["materialized"]
    assert "the total is 5" in runs[1]["logs"]


def test_a_run_with_nothing_new_materializes_nothing_and_answers_the_checks(runs):
    assert runs[2]["success"]
    assert runs[2]["materialized"] == {}
    assert runs[2]["observed"] == ["case/numbers"]
    assert runs[2]["checks"] == {f"case/numbers/{name}": True for name in ("small", *CHECKS)}


def test_a_failed_stream_skips_what_depends_on_it_and_both_are_named(runs):
    assert not runs[0]["success"]
    (description,) = runs[0]["failures"]
    assert description.startswith("case/broken: ")
    assert "case/after: skipped: case/broken did not succeed." in description


def test_the_error_and_sparks_own_log_are_in_the_compute_log_with_the_streams_name(runs):
    lines = runs[0]["logs"].splitlines()
    assert any("case/broken: [" in line for line in lines)
    assert any("MicroBatchExecution: Query case/broken" in line for line in lines)
    assert any("no way" in line for line in lines)


def test_the_job_of_a_pipeline_replays_streams_and_records_it(runs):
    observed, failures = runs[3]
    assert not failures
    assert observed["case/numbers"]["tidemill/command"] == "tidemill rebuild case/numbers"
    assert runs[4]["success"]
    assert not runs[4]["materialized"], "nothing is left to read"


def test_the_jobs_of_a_pipeline_do_what_the_commands_do(runs):
    assert runs[5]["materialized"]["case/numbers"]["dagster/row_count"] == 4
    dry, rewound, replayed, pruned, reset = runs[6]
    assert dry == [{}, []], "a plan changes nothing, and is no observation"
    assert rewound[0]["case/numbers"]["tidemill/command"] == "tidemill rewind case/numbers --to-batch 0"
    assert replayed == [{}, []], "no record passes today's rules"
    assert pruned[0]["case/numbers"]["tidemill/removed_leftovers"] > 0
    assert not reset[0]
    [refusal] = reset[1]
    assert "--allow-doubled" in refusal
    numbers = runs[7]["materialized"]["case/numbers"]
    assert (numbers["tidemill/rows_written"], numbers["dagster/row_count"]) == (1, 4)
    assert numbers["tidemill/generation"] == 3
