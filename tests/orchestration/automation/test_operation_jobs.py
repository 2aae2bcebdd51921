"""The jobs that are made from the declarations of the operations, without a JVM."""

import pytest
from dagster import DagsterInstance, Definitions

from tests.orchestration.shop import ORDERS, Shop
from tidemill.operations.edits.accept import ACCEPT
from tidemill.orchestration.assets.assets import streaming_resources
from tidemill.orchestration.jobs.operation_job import operation_job
from tidemill.records.stream_records import StreamRecords


@pytest.fixture
def accept(tmp_path, monkeypatch):
    """Run the job `shop__accept` with a config; its stream has run, and its table is missing."""
    shop = Shop.make(tmp_path, monkeypatch)
    shop.has_run("a.json")
    [pipeline] = shop.target.pipelines().pipelines.values()
    job = operation_job(ACCEPT, pipeline, {}, target=shop.target)
    defs = Definitions(jobs=[job], resources=streaming_resources(shop.target))
    records = StreamRecords(shop.target.lake, ORDERS)

    def run(**config):
        with DagsterInstance.ephemeral() as instance:
            result = defs.resolve_job_def("shop__accept").execute_in_process(
                {"ops": {"shop__run_accept": {"config": {"stream": "shop/orders", **config}}}},
                instance=instance,
                raise_on_error=False,
            )
        failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
        return [failure.user_failure_data.description for failure in failures], records.checked()

    return run


def test_a_decision_is_recorded_by_its_job_and_not_by_its_plan(accept):
    assert accept(findings=True, dry_run=True) == ([], None)
    failures, checked = accept(findings=True)
    assert not failures
    assert checked.position.batch == 0
    [again], _ = accept(findings=True)
    assert again.startswith("shop/orders: the check exactly_once has found nothing.")


def test_a_mistake_is_named_by_the_fields_of_the_config(accept):
    [neither], checked = accept()
    assert neither.startswith("Name one of new_source, version, change, findings, new_sink.")
    [malformed], _ = accept(version="orders")
    assert malformed.startswith("version is 'orders'. Fix: Name the commit")
    [several], _ = accept(stream="shop", findings=True)
    assert "'shop' selects 2 streams" in several
    assert checked is None
