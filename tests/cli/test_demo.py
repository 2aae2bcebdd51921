"""`tidemill demo` in a project that it does not fit."""

import sys

from typer.testing import CliRunner

from tests.support.raising import raises
from tidemill.cli import app

ON_KAFKA = """
pipelines = ["pipelines.ads:ads"]

[targets.dev.kafka.default]
bootstrap = "kafka:9092"

[targets.dev.feeds]
ad-clicks = { topic = "clicks" }
"""


def test_a_demo_writes_no_files_for_a_feed_that_is_bound_to_kafka(tmp_path, monkeypatch):
    (tmp_path / "tidemill.toml").write_text(ON_KAFKA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])  # the demo adds the project
    with raises("demo-feeds-on-kafka", "'dev'", "ad-clicks", "tidemill demo --kafka"):
        CliRunner().invoke(app, ["demo"], catch_exceptions=False)
    assert [path.name for path in tmp_path.iterdir()] == ["tidemill.toml"]
