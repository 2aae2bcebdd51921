"""A store that does not answer is no damaged checkpoint."""

from datetime import UTC, datetime

from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.checks.evaluation import evaluate
from tidemill.run.decide.status import status_of
from tidemill.storage import object_store
from tidemill.storage.lake import Lake
from tidemill.target.target import Target


def test_checks_of_a_store_that_does_not_answer_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(object_store, "_RETRIES", 0)
    settings = object_store.S3Settings(
        endpoint="http://127.0.0.1:1",
        region="us-east-1",
        access_key_id="a",
        secret_access_key="b",  # noqa: S106 - of nothing
    )
    lake = Lake(object_store.ObjectStore("lake", settings=settings))
    target = Target(name="t", lake=lake, default_binding=tmp_path)
    orders = Pipeline("shop").stream(source=Feed("orders", Json("n INT")), sink=DeltaAppend(), name="orders")(
        lambda rows: rows
    )

    with raises("store-unavailable", "s3a://lake", "127.0.0.1:1"):
        status_of(orders, target)
    results = evaluate(orders, target, datetime.now(UTC))
    assert results
    assert {result.status for result in results} == {"unknown"}
    assert all("does not answer" in result.summary for result in results)
