"""`[targets.<name>.alerts]`: what it may have, what is refused, and that a secret is shown nowhere."""

import pytest

from tests.support.raising import raises
from tidemill.target.alerts import AlertSettings
from tidemill.target.resolve import resolve
from tidemill.text.secret import Secret

WEBHOOK = 'webhook = "${ALERT_URL}"\n'
MAIL = """
email_to = ["data@example.com", "on-call@example.com"]
email_from = "tidemill@example.com"
smtp_host = "smtp.${REGION}.example.com"
"""
LOGIN = 'smtp_username = "tidemill"\nsmtp_password = "${SMTP_PASSWORD}"\n'
VALUES = {"ALERT_URL": "https://hooks.example.com/T0-s3cr3t", "SMTP_PASSWORD": "hunter2"}


def resolved(folder, alerts):
    text = f'[targets.dev]\n[targets.prod]\nlake = "lake"\n[targets.prod.alerts]\n{alerts}'
    (folder / "tidemill.toml").write_text(text, encoding="utf-8")
    return resolve("prod", environ={"REGION": "eu"}, start=folder)


def test_both_channels_are_read(tmp_path):
    settings = resolved(tmp_path, WEBHOOK + MAIL + LOGIN + 'smtp_tls = "implicit"').alerts
    assert settings == AlertSettings(
        webhook=Secret("${ALERT_URL}", ""),
        email_to=("data@example.com", "on-call@example.com"),
        email_from="tidemill@example.com",
        smtp_host="smtp.eu.example.com",
        smtp_tls="implicit",
        smtp_username="tidemill",
        smtp_password=Secret("${SMTP_PASSWORD}", ""),
    )
    assert settings.port == 465
    assert resolve("dev", start=tmp_path).alerts is None


@pytest.mark.parametrize(("tls", "port"), [("starttls", 587), ("implicit", 465), ("none", 25)])
def test_the_port_follows_from_tls(tmp_path, tls, port):
    assert resolved(tmp_path, f'{MAIL}smtp_tls = "{tls}"').alerts.port == port
    assert resolved(tmp_path, f'{MAIL}smtp_tls = "{tls}"\nsmtp_port = 2525').alerts.port == 2525


def test_secrets_are_masked_and_the_origin_is_shown(tmp_path, monkeypatch):
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    target = resolved(tmp_path, WEBHOOK + MAIL + LOGIN)
    settings = {setting.name: setting for setting in target.settings()}
    assert settings["alerts.webhook"].value == settings["alerts.smtp_password"].value == "********"
    assert settings["alerts.email_to"].value == "data@example.com, on-call@example.com"
    assert settings["alerts.webhook"].origin == "tidemill.toml [targets.prod] from ALERT_URL"
    for value in VALUES.values():
        assert value not in f"{target!r} {target.settings()}"


@pytest.mark.parametrize(
    ("alerts", "fault"),
    [
        ("", "alerts needs a webhook or email_to, or both"),
        (
            'webhook = "https://hooks.example.com/T0"',
            "alerts.webhook takes only a variable of the environment",
        ),
        ('webhok = "${ALERT_URL}"', "alerts.webhok is an unknown key. Did you mean 'webhook'?"),
        (WEBHOOK + 'smtp_host = "h"', "alerts.smtp_host is for e-mail, and email_to is missing"),
        ('email_to = ["a@b"]\nsmtp_host = "h"', "alerts.email_from is missing, and email_to needs it"),
        ('email_to = ["a@b"]\nemail_from = "c@d"', "alerts.smtp_host is missing, and email_to needs it"),
        (MAIL.replace("data@example.com", "data"), "alerts.email_to is 'data'; write an address like"),
        (MAIL.replace("tidemill@", "a@b\\nBcc: "), "alerts.email_from is 'a@b"),
        (MAIL.replace('["data@example.com", "on-call@example.com"]', "[]"), "must have at least one address"),
        (MAIL.replace('["data@example.com", "on-call@example.com"]', '"a@b"'), "must be a list of strings"),
        (MAIL + 'smtp_username = "u"', "alerts.smtp_password is missing, and smtp_username needs it"),
        (MAIL + 'smtp_password = "${P}"', "alerts.smtp_username is missing, and smtp_password needs it"),
        (MAIL + LOGIN.replace("${SMTP_PASSWORD}", "hunter2"), "alerts.smtp_password takes only a variable"),
        (MAIL + 'smtp_tls = "ssl"', "alerts.smtp_tls is 'ssl'; it is one of starttls, implicit, none"),
        (MAIL + "smtp_port = 70000", "alerts.smtp_port is 70000; the largest port is 65535"),
    ],
)
def test_a_fault_is_named(tmp_path, alerts, fault):
    with raises("config-invalid", fault) as caught:
        resolved(tmp_path, alerts)
    assert "hunter2" not in str(caught.value)
    assert "T0" not in str(caught.value)


def test_a_variable_that_is_not_set_is_an_error_of_its_target_only(tmp_path):
    alerts = MAIL.replace("tidemill@example.com", "${FROM}")
    with raises("variable-missing", "FROM", "alerts.email_from"):
        resolved(tmp_path, alerts)
    assert resolve("dev", start=tmp_path).alerts is None
