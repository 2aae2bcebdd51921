"""A webhook gets JSON, a mail server gets an e-mail, and no log or error shows a secret."""

import json
import logging
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.servers import receivers as servers
from tests.support.raising import raises
from tidemill.orchestration.alerts import channels as webhooks
from tidemill.orchestration.alerts.alert import MOST_CHARACTERS, Alert, DeliveryError
from tidemill.orchestration.alerts.channels import channels
from tidemill.target.alerts import AlertSettings
from tidemill.text.secret import Secret

ALERT = Alert(
    event="failed",
    cause="check failed",
    target="prod",
    subject="shop/orders",
    stream="shop/orders",
    check="freshness",
    message="The newest event is 3 h old. <!channel> Fix: start the producer.",
    run_id="run-1",
    at=datetime(2026, 1, 1, 12, tzinfo=UTC),
)
TOKEN = "T0-s3cr3t"  # noqa: S105 - not one


@pytest.fixture(autouse=True)
def _loopback(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(webhooks, "PAUSES_SECONDS", (0.0, 0.0))


def post(monkeypatch, port, alert=ALERT):
    monkeypatch.setenv("ALERT_URL", f"http://127.0.0.1:{port}/hooks/{TOKEN}")
    settings = AlertSettings(webhook=Secret("${ALERT_URL}", "alerts.webhook of target 'prod'"))
    channels(settings)["webhook"](alert)


def test_a_webhook_gets_the_message_and_its_parts(monkeypatch):
    with servers.webhook() as server:
        post(monkeypatch, server.port)
    assert server.requests == [("POST", f"/hooks/{TOKEN}")]
    assert server.received == [
        {
            "schema_version": 1,
            "text": "[tidemill prod] shop/orders: check failed (freshness)\n"
            "The newest event is 3 h old. &lt;!channel&gt; Fix: start the producer.\n"
            "Dagster run run-1, 2026-01-01 12:00:00 UTC",
            "event": "failed",
            "cause": "check failed",
            "target": "prod",
            "subject": "shop/orders",
            "stream": "shop/orders",
            "check": "freshness",
            "message": ALERT.message,
            "run_id": "run-1",
            "at": "2026-01-01T12:00:00+00:00",
        }
    ]


def test_the_page_shows_what_is_sent():
    page = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text(encoding="utf-8")
    shown = json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    fields = {name: shown[name] for name in Alert.__slots__}
    assert Alert(**fields | {"at": datetime.fromisoformat(shown["at"])}).as_json() == shown


def test_a_server_that_is_overloaded_is_asked_again(monkeypatch):
    with servers.webhook() as server:
        server.statuses = [503, 429]
        post(monkeypatch, server.port)
    assert len(server.requests) == 3
    assert len(server.received) == 1


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (302, 1), (500, 3)])
def test_a_refused_alert_is_an_error_without_the_address(monkeypatch, caplog, status, requests):
    """A redirect is refused, too: it would turn the POST into a GET, whose answer is 200."""
    caplog.set_level(logging.DEBUG)
    with servers.webhook() as server:
        server.statuses = [status] * 3
        with pytest.raises(DeliveryError) as caught:
            post(monkeypatch, server.port)
    assert [method for method, _ in server.requests] == ["POST"] * requests
    assert f"alerts.webhook of target 'prod' answers with HTTP status {status}." in str(caught.value)
    assert "Fix: Check the address in ALERT_URL" in str(caught.value)
    assert TOKEN not in str(caught.value) + repr(caught.getrepr(style="long")) + caplog.text


def test_a_server_that_is_down_is_an_error_without_the_address(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    with servers.webhook() as server:
        port = server.port
    with raises("alert-not-delivered") as caught:
        post(monkeypatch, port)
    assert TOKEN not in str(caught.value) + caplog.text


@pytest.mark.parametrize("address", [f"file:///{TOKEN}", TOKEN, f"http://[{TOKEN}", f"http://h/{TOKEN}\n"])
def test_a_value_that_is_no_address_is_refused_and_not_repeated(monkeypatch, address):
    monkeypatch.setenv("ALERT_URL", address)
    settings = AlertSettings(webhook=Secret("${ALERT_URL}", "alerts.webhook"))
    with raises("webhook-address-invalid", "ALERT_URL") as caught:
        channels(settings)["webhook"](ALERT)
    assert TOKEN not in str(caught.value)


def test_a_very_long_message_is_shortened():
    sent = Alert(**{name: getattr(ALERT, name) for name in Alert.__slots__} | {"message": "x" * 10_000})
    assert len(sent.as_json()["text"]) < MOST_CHARACTERS + 300
    assert "the log of the run has the rest" in sent.as_json()["message"]


def mail(port, **fields):
    settings = AlertSettings(
        email_to=("a@example.com", "b@example.com"),
        email_from="tidemill@example.com",
        smtp_host="127.0.0.1",
        smtp_port=port,
        **{"smtp_tls": "none", **fields},
    )
    channels(settings)["email"](ALERT)


def test_a_mail_server_gets_one_message_for_all_addresses(monkeypatch):
    monkeypatch.setenv("SMTP_PASSWORD", TOKEN)
    with servers.mail_server(login=("tidemill", TOKEN)) as box:
        mail(box.port, smtp_username="tidemill", smtp_password=Secret("${SMTP_PASSWORD}", "s"))
    (message,) = box.received
    assert message["Subject"] == "[tidemill prod] shop/orders: check failed (freshness)"
    assert message["From"] == "tidemill@example.com"
    assert message["To"] == "a@example.com, b@example.com"
    assert ALERT.message in message.get_content()
    assert "run-1" in message.get_content()


def test_a_refused_password_is_an_error_without_it(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SMTP_PASSWORD", TOKEN)
    with (
        servers.mail_server(login=("tidemill", "another")) as box,
        raises("mail-credentials-refused", "status 535") as caught,
    ):
        mail(box.port, smtp_username="tidemill", smtp_password=Secret("${SMTP_PASSWORD}", "s"))
    (sent,) = [line.split()[2] for line in box.lines if line.startswith("AUTH")]
    assert TOKEN not in str(caught.value) + caplog.text
    assert sent not in str(caught.value) + caplog.text, "the server's answer repeats the command"
    assert box.received == []


def test_nothing_is_sent_in_clear_if_the_server_does_not_offer_tls(monkeypatch):
    monkeypatch.setenv("SMTP_PASSWORD", TOKEN)
    with servers.mail_server(login=("tidemill", TOKEN)) as box, pytest.raises(DeliveryError):
        mail(
            box.port,
            smtp_tls="starttls",
            smtp_username="tidemill",
            smtp_password=Secret("${SMTP_PASSWORD}", "s"),
        )
    assert not [line for line in box.lines if line.startswith(("AUTH", "mail"))]
    assert box.received == []


@pytest.mark.parametrize("tls", ["implicit", "starttls"])
def test_the_certificate_of_the_mail_server_is_verified(tmp_path, monkeypatch, tls):
    context = servers.certificate(tmp_path / "loopback.pem")
    monkeypatch.setenv("SMTP_PASSWORD", TOKEN)
    login = {"smtp_username": "tidemill", "smtp_password": Secret("${SMTP_PASSWORD}", "s")}
    with servers.mail_server(tls=context, implicit=tls == "implicit", login=("tidemill", TOKEN)) as box:
        with raises("alert-not-delivered"):
            mail(box.port, smtp_tls=tls, **login)
        assert not [line for line in box.lines if line.startswith(("AUTH", "mail"))]
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "loopback.pem"))
        mail(box.port, smtp_tls=tls, **login)
        assert len(box.received) == 1


def test_a_refused_address_does_not_keep_the_others_from_getting_the_mail(caplog):
    with servers.mail_server(refused=("b@example.com",)) as box:
        mail(box.port)
    assert len(box.received) == 1
    assert "refuses b@example.com (status 550)" in caplog.text
    with (
        servers.mail_server(refused=("a@example.com", "b@example.com")) as box,
        raises("mail-addresses-refused"),
    ):
        mail(box.port)


def test_a_mail_server_that_is_down_is_an_error():
    with servers.mail_server() as box:
        port = box.port
    with raises("alert-not-delivered", f"127.0.0.1:{port}", "Connection refused"):
        mail(port)
