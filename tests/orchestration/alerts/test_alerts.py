"""Alerts: one message per stream and cause, one when it has recovered, and none is lost. Runs are canned here."""

import json
import logging

import pytest
from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetSpec,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    Definitions,
    MaterializeResult,
    asset,
    build_sensor_context,
    in_process_executor,
    materialize,
    multi_asset,
)

from tests.servers import receivers as servers
from tests.support.raising import raises
from tidemill import DeltaAppend, Expect, Feed, Pipeline, Raw
from tidemill.errors import ConfigurationError, TerminalError, TransientError
from tidemill.orchestration.alerts import channels as webhooks
from tidemill.orchestration.alerts import routing as alert_delivery
from tidemill.orchestration.alerts.alert import DeliveryError
from tidemill.orchestration.alerts.sensor import alert_sensors
from tidemill.orchestration.assets.assets import pipeline_job, streaming_assets, streaming_resources
from tidemill.orchestration.assets.translator import stream_keys
from tidemill.run.execute.progress import Live
from tidemill.run.execute.results import StreamResult
from tidemill.target.resolve import resolve
from tidemill.text.names import StreamName

CLICKS, TOTALS, ORDERS = (StreamName("shop", name) for name in ("clicks", "totals", "orders"))
TOKEN = "T0-s3cr3t"  # noqa: S105 - not one
ALERTS = """
[targets.dev.alerts]
webhook = "${ALERT_URL}"
"""
MAIL = """
email_to = ["data@example.com"]
email_from = "tidemill@example.com"
smtp_host = "127.0.0.1"
smtp_port = %d
smtp_tls = "none"
"""


def updated(name):
    return StreamResult(stream=name, outcome="updated", generation=1, table_version=1)


def idle(name):
    return StreamResult(stream=name, outcome="idle", reason="nothing new", generation=1)


def busy(name):
    return StreamResult(stream=name, outcome="busy", reason="held by another run")


def failed(name, what="the column is missing.", *, kind=TerminalError, **fields):
    error = kind(what, stream=name, fix="Put it back.", **fields)
    return StreamResult(stream=name, outcome="failed", error=error)


def skipped(name):
    return StreamResult(stream=name, outcome="skipped", reason="shop/clicks did not succeed")


class Shop:
    """A code location whose runs have canned results, and the sensor with its cursor."""

    def __init__(self, tmp_path, monkeypatch, instance):
        self.root = tmp_path
        self.instance = instance
        self._monkeypatch = monkeypatch
        self.cursor = None
        self.pipeline = Pipeline("shop")
        clicks = self._stream("clicks", Feed("clicks", format=Raw()))
        self._stream("totals", clicks)
        self._stream("orders", Feed("orders", format=Raw()))
        monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))
        monkeypatch.delenv("TIDEMILL_TARGET", raising=False)
        monkeypatch.setenv("NO_PROXY", "*")
        self.configure(ALERTS)

    def _stream(self, name, source):
        rules = [Expect("known", "id IS NOT NULL", on_violation="warn")]
        return self.pipeline.stream(source=source, sink=DeltaAppend(), name=name, expect=rules)(
            lambda rows: rows
        )

    def configure(self, alerts):
        text = f'pipelines = []\n[targets.dev]\nlake = "lake"\n{alerts}'
        (self.root / "tidemill.toml").write_text(text, encoding="utf-8")

    def send_to(self, port):
        self._monkeypatch.setenv("ALERT_URL", f"http://127.0.0.1:{port}/hooks/{TOKEN}")

    def run(self, *results, further=()):
        """Run the streams of these results, through the op that Dagster runs."""

        class PipelineRun:
            def __init__(self, *_args, **_fields):
                self.finished = []
                self.live = Live()

            def iter_results(self, *, on_wait):
                on_wait()
                for result in results:
                    if callable(result):  # something that happens meanwhile
                        result()
                        continue
                    self.finished.append(result)
                    yield result

        self._monkeypatch.setattr("tidemill.orchestration.assets.assets.PipelineRun", PipelineRun)
        return self.materialize(
            streaming_assets(self.pipeline),
            *further,
            names=[r for r in results if not callable(r)],
            every=bool(further),
        )

    def materialize(self, *assets, names=(), every=False):
        selection = [AssetKey([r.stream.pipeline, r.stream.stream]) for r in names]
        return materialize(
            assets,
            instance=self.instance,
            resources=streaming_resources(),
            raise_on_error=False,
            selection=None if every or not selection else selection,
        )

    def planned(self):
        """Create a run of the job whose process has not begun."""
        assets = streaming_assets(self.pipeline)
        defs = Definitions(
            assets=[assets],
            jobs=[pipeline_job(self.pipeline, assets)],
            resources=streaming_resources(),
            executor=in_process_executor,
        )
        return self.instance.create_run_for_job(
            defs.resolve_job_def("shop"),
            status=DagsterRunStatus.STARTED,
        )

    def sensor(self):
        (sensor,) = alert_sensors([self.pipeline], stream_keys(self.pipeline), target=resolve())
        return sensor

    def tick(self):
        result = self.sensor()(build_sensor_context(instance=self.instance, cursor=self.cursor))
        self.cursor = result.cursor
        return result.skip_reason.skip_message


@pytest.fixture
def shop(tmp_path, monkeypatch, request):
    """Return a shop, whose event log is in memory, or as a parameter says in files: those have one per run."""
    monkeypatch.setattr(webhooks, "PAUSES_SECONDS", (0.0, 0.0))
    in_files = getattr(request, "param", "memory") == "files"
    create = DagsterInstance.local_temp if in_files else DagsterInstance.ephemeral
    with create(str(tmp_path)) as instance:
        yield Shop(tmp_path, monkeypatch, instance)


in_memory_and_in_files = pytest.mark.parametrize("shop", ["memory", "files"], indirect=True)


@pytest.fixture
def server(shop):
    with servers.webhook() as state:
        shop.send_to(state.port)
        shop.tick()
        yield state


def failing(stream, cause="run failed"):
    return f"[tidemill dev] {stream}: {cause}"


def recovered(stream, cause="run failed"):
    return f"[tidemill dev] {stream}: recovered from: {cause}"


@pytest.mark.slow
@in_memory_and_in_files
def test_a_stream_that_stays_broken_sends_one_message_and_one_when_it_recovers(shop, server):
    for number in range(2):
        shop.run(
            failed(CLICKS, f"the column is missing, attempt {number}."), skipped(TOTALS), updated(ORDERS)
        )
        shop.tick()
        shop.tick()
    assert server.titles == [failing("shop/clicks")]
    (sent,) = server.received
    assert sent["message"] == (
        "shop/clicks: the column is missing, attempt 0. No data was lost. Fix: Put it back.\n"
        "Skipped because of it: shop/totals."
    )
    assert (sent["cause"], sent["stream"], sent["check"], sent["target"]) == (
        "run failed",
        "shop/clicks",
        None,
        "dev",
    )
    assert sent["run_id"] in {run.run_id for run in shop.instance.get_runs()}
    shop.run(busy(CLICKS), updated(ORDERS))
    shop.tick()
    assert len(server.received) == 1, "a stream that another run holds has not recovered"
    shop.run(updated(CLICKS))
    shop.tick()
    shop.tick()
    assert server.titles[1:] == [recovered("shop/clicks")]
    assert "it had failed since 20" in server.received[1]["message"]


def test_an_idle_run_is_a_recovery_and_an_observation_of_progress_is_not(shop, server):
    shop.run(failed(CLICKS))
    shop.tick()
    shop.instance.report_runless_asset_event(
        AssetObservation(AssetKey(["shop", "clicks"]), metadata={"tidemill/batch": 3})
    )
    shop.tick()
    assert len(server.received) == 1
    shop.run(idle(CLICKS))
    shop.tick()
    assert server.titles[1:] == [recovered("shop/clicks")]


def test_two_streams_that_fail_in_one_run_send_two_messages(shop, server):
    shop.run(failed(CLICKS), skipped(TOTALS), failed(ORDERS))
    shop.tick()
    assert server.titles == [failing("shop/clicks"), failing("shop/orders")]
    assert ["totals" in sent["message"] for sent in server.received] == [True, False]
    shop.run(failed(CLICKS), updated(ORDERS))
    shop.tick()
    assert server.titles[2:] == [recovered("shop/orders")]


def test_another_kind_of_error_sends_another_message(shop, server):
    for error in (
        {"kind": TransientError},
        {"kind": TransientError},
        {"error_class": "DELTA_TABLE"},
        {"kind": TransientError},
    ):
        shop.run(failed(CLICKS, **error))
        shop.tick()
    assert server.titles == [failing("shop/clicks")] * 2
    shop.run(updated(CLICKS))
    shop.tick()
    assert server.titles[2:] == [recovered("shop/clicks")]


def test_a_failure_and_its_recovery_between_two_ticks_are_both_sent(shop, server):
    shop.run(failed(CLICKS))
    shop.run(updated(CLICKS))
    shop.tick()
    assert server.titles == [failing("shop/clicks"), recovered("shop/clicks")]


@in_memory_and_in_files
def test_a_run_that_ends_before_its_streams_names_them_until_all_have_run(shop, server):
    run = shop.planned()
    shop.instance.report_run_failed(run, "The process of the run has died.")
    shop.tick()
    assert server.titles == [failing("shop")]
    (sent,) = server.received
    assert sent["stream"] is None
    assert "before 3 streams did: shop/clicks, shop/orders, shop/totals. The process" in sent["message"]
    assert f"Fix: read the log of run {run.run_id}" in sent["message"]
    shop.run(updated(CLICKS), idle(TOTALS))
    shop.tick()
    assert len(server.received) == 1
    shop.run(updated(ORDERS))
    shop.tick()
    assert server.titles[1:] == [recovered("shop")]


def test_an_error_before_the_first_stream_has_its_own_message(shop, server, monkeypatch):
    class PipelineRun:
        def __init__(self, *_args, **_fields):
            raise ConfigurationError("There is no Java.", fix="Install Java 17.")

    monkeypatch.setattr("tidemill.orchestration.assets.assets.PipelineRun", PipelineRun)
    shop.materialize(streaming_assets(shop.pipeline), names=[updated(CLICKS)])
    shop.tick()
    assert server.titles == [failing("shop/clicks")]
    assert "There is no Java. Fix: Install Java 17." in server.received[0]["message"]


def test_what_is_no_failure_of_a_stream_sends_nothing(shop, server):
    @asset(deps=[AssetKey(["shop", "orders"])])
    def report():
        raise ValueError

    shop.instance.report_run_canceled(shop.planned())
    shop.run(busy(CLICKS))
    shop.run(updated(CLICKS), updated(TOTALS), updated(ORDERS), further=[report])
    shop.materialize(report)
    assert shop.tick() == "0 messages sent."
    assert server.received == []


def evaluate(shop, *, passed, severity=AssetCheckSeverity.ERROR, blocking=False):
    """Run a check of clicks, as an op of streams evaluates it; another run holds orders."""
    key = AssetKey(["shop", "clicks"])
    specs = [AssetSpec(key), AssetSpec(["shop", "orders"], skippable=True)]

    @multi_asset(specs=specs, check_specs=[AssetCheckSpec("known", asset=key, blocking=blocking)])
    def checked():
        result = AssetCheckResult(
            passed=passed, asset_key=key, check_name="known", severity=severity, description="3 violations."
        )
        yield MaterializeResult(asset_key=key, check_results=[result])

    shop.materialize(checked)


@in_memory_and_in_files
def test_a_failed_check_sends_one_message_and_one_when_it_passes_again(shop, server):
    for _ in range(2):
        evaluate(shop, passed=False)
        shop.tick()
    shop.run(idle(ORDERS))
    evaluate(shop, passed=False, severity=AssetCheckSeverity.WARN)
    shop.tick()
    assert server.titles == [failing("shop/clicks", "check failed (known)")]
    (sent,) = server.received
    assert (sent["cause"], sent["check"], sent["message"]) == ("check failed", "known", "3 violations.")
    evaluate(shop, passed=True)
    shop.tick()
    shop.tick()
    assert server.titles[1:] == [recovered("shop/clicks", "check failed (known)")]


def test_a_warning_sends_nothing_and_a_blocking_check_is_not_a_failed_run(shop, server):
    evaluate(shop, passed=False, severity=AssetCheckSeverity.WARN)
    shop.tick()
    assert server.received == []
    evaluate(shop, passed=False, blocking=True)
    shop.tick()
    assert server.titles == [failing("shop/clicks", "check failed (known)")]


def test_a_server_that_is_down_delays_the_messages_and_loses_none(shop, server, caplog):
    caplog.set_level(logging.DEBUG)
    before = shop.cursor
    shop.run(failed(CLICKS), failed(ORDERS))
    server.statuses = [500] * 3
    with pytest.raises(DeliveryError) as caught:
        shop.tick()
    assert shop.cursor == before
    server.statuses = [200, 404]
    message = shop.tick()
    assert message.startswith(
        "1 message sent. The server of alerts.webhook of target 'dev' answers with HTTP"
    )
    assert server.titles == [failing("shop/clicks")]
    assert shop.tick() == "1 message sent."
    assert server.titles == [failing("shop/clicks"), failing("shop/orders")]
    assert TOKEN not in f"{caught.getrepr(style='long')} {message} {caplog.text} {shop.cursor}"


def test_a_channel_that_is_down_does_not_delay_the_other(shop, server):
    with servers.mail_server() as box:
        shop.configure(ALERTS + MAIL % box.port)
        shop.run(failed(CLICKS))
        server.statuses = [500] * 3
        assert shop.tick().startswith("1 message sent. The server of alerts.webhook")
        assert [message["Subject"] for message in box.received] == [failing("shop/clicks")]
        assert shop.tick() == "1 message sent."
        assert server.titles == [failing("shop/clicks")]
        shop.run(updated(CLICKS))
        shop.tick()
    assert [message["Subject"] for message in box.received][1:] == [recovered("shop/clicks")]


def test_a_tick_that_runs_out_of_time_continues_with_the_next(shop, server, monkeypatch):
    shop.run(failed(CLICKS), failed(ORDERS))
    with monkeypatch.context() as patch:
        patch.setattr(alert_delivery, "BUDGET_SECONDS", -1)
        assert shop.tick() == "0 messages sent."
    shop.tick()
    assert server.titles == [failing("shop/clicks"), failing("shop/orders")]


@pytest.mark.parametrize("cursor", [None, "not JSON", json.dumps({"webhook": {"position": 1}})])
def test_a_reset_cursor_loses_nothing_and_repeats_only_what_is_still_broken(shop, server, cursor):
    shop.run(failed(CLICKS), failed(ORDERS))
    shop.run(updated(ORDERS))
    evaluate(shop, passed=False)
    shop.tick()
    shop.run(failed(CLICKS))
    server.received.clear()
    shop.cursor = cursor
    server.statuses = [200, 404]
    shop.tick()
    shop.tick()
    assert sorted(server.titles) == [
        failing("shop/clicks", "check failed (known)"),
        failing("shop/clicks"),
    ]
    assert shop.tick() == "0 messages sent."


def test_a_variable_that_is_not_set_fails_the_tick_and_keeps_the_message(shop, server, monkeypatch):
    shop.run(failed(CLICKS))
    monkeypatch.delenv("ALERT_URL")
    with raises("variable-missing", "ALERT_URL", "alerts.webhook", "'dev'"):
        shop.tick()
    shop.send_to(server.port)
    shop.tick()
    assert server.titles == [failing("shop/clicks")]


def test_a_stream_that_another_run_has_repaired_meanwhile_has_recovered(shop, server):
    """A run ends, and is seen, long after its first stream failed."""
    succeeded_elsewhere = AssetMaterialization(AssetKey(["shop", "clicks"]))
    shop.run(
        failed(CLICKS), lambda: shop.instance.report_runless_asset_event(succeeded_elsewhere), updated(ORDERS)
    )
    shop.tick()
    assert server.titles == [failing("shop/clicks"), recovered("shop/clicks")]


def test_a_stream_that_is_removed_is_forgotten(shop, server):
    shop.run(failed(ORDERS))
    shop.tick()
    streams = shop.pipeline
    shop.pipeline = Pipeline("shop")
    shop._stream("clicks", Feed("clicks", format=Raw()))
    assert shop.tick() == "0 messages sent."
    assert json.loads(shop.cursor)["webhook"]["open"] == []
    shop.pipeline = streams
    shop.run(failed(ORDERS))
    shop.tick()
    assert server.titles == [failing("shop/orders")] * 2


def test_the_sensor_runs_at_once_and_only_where_alerts_are_configured(shop):
    assert shop.sensor().default_status == DefaultSensorStatus.RUNNING
    shop.configure("")
    assert alert_sensors([], {}, target=resolve()) == []
