"""The commands of docs/tour.md, executed in the order of the page against Dagster's own processes."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from dagster import AssetCheckSeverity, AssetKey, DagsterRunStatus
from deltalake import DeltaTable

from tests.orchestration.live_dagster import LiveDagster
from tests.support.small import small_target

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
STEPS = {
    title: re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
RUN_SECONDS = 300


@pytest.fixture
def tour(tmp_path):
    """A folder that looks like a clone to the commands, with the target `dev` in it, and Dagster on it."""
    settings = small_target("pipelines.ads:ads")
    settings = settings.replace('lake = "lake"\nlanding = "landing"\n', "")  # where the target `dev` has them
    (tmp_path / "tidemill.toml").write_text(settings)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    with LiveDagster(tmp_path, "orchestration.definitions") as dagster:
        dagster.start_daemon()
        yield Tour(dagster)


class Tour:
    def __init__(self, dagster):
        self.dagster, self.folder = dagster, dagster.project

    def run(self, block):
        """Run a block of the page as it is, but for the port of the UI, and return what it prints."""
        (start,) = re.findall(r"^```sh\n(.*?)^```", PAGE.split("## ", 1)[0], re.MULTILINE | re.DOTALL)
        assert "http://127.0.0.1:3000" in start
        start = start.replace("3000", str(self.dagster.port))
        table = "table=.tidemill/lake/tables/ads/attribution\n"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", start + table + block],  # noqa: S607
            cwd=self.folder,
            env=os.environ | {"DAGSTER_HOME": str(self.dagster.home), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def states(self):
        document = json.loads(self.run("tidemill status --json"))
        return {stream["state"] for stream in document["streams"]}

    def wait_for_run(self, number):
        """Wait until so many runs have ended, and return the newest."""
        instance = self.dagster.instance
        self.dagster.wait_for(
            lambda: [run.is_finished for run in instance.get_runs()] == number * [True], RUN_SECONDS
        )
        run = instance.get_runs()[0]
        assert run.status == DagsterRunStatus.SUCCESS, self.dagster.log.read_text()[-6000:]
        return run

    def failed_checks(self, run):
        records = self.dagster.instance.get_records_for_run(run.run_id).records
        events = [record.event_log_entry.dagster_event for record in records]
        evaluations = [
            event.asset_check_evaluation_data
            for event in events
            if event is not None and event.event_type_value == "ASSET_CHECK_EVALUATION"
        ]
        assert evaluations
        errors = [e for e in evaluations if not e.passed and e.severity == AssetCheckSeverity.ERROR]
        return {(error.asset_key, error.check_name) for error in errors}


def test_the_tour(tour):
    materialize, automate, repair = (STEPS[title] for title in list(STEPS)[:3])
    waits, launch, look = materialize
    assert "never_run" in tour.run(waits)
    assert "LaunchRunSuccess" in tour.run(launch)
    assert not tour.failed_checks(tour.wait_for_run(1))
    tour.run(look)
    assert tour.states() == {"idle"}

    (sensor,) = automate
    assert "behind" in tour.run(sensor)
    run = tour.wait_for_run(2)
    assert run.tags["tidemill/cause"] == "backlog"
    assert tour.states() == {"idle"}

    delete, red, job, restore, again = repair
    tour.run(delete)
    printed = tour.run(red)
    assert "exit status 1" in printed
    tour.run(job)
    expected = (AssetKey(["ads", "attribution"]), "exactly_once")
    assert tour.failed_checks(tour.wait_for_run(3)) == {expected}
    tour.run(restore)
    tour.run(again)
    assert not tour.failed_checks(tour.wait_for_run(4))

    (delete, replay) = STEPS[list(STEPS)[3]]
    table = tour.folder / ".tidemill" / "lake" / "tables" / "ads" / "attribution"
    before = DeltaTable(str(table)).to_pyarrow_table(columns=["impression_id"]).num_rows
    tour.run(delete)
    assert DeltaTable(str(table)).to_pyarrow_table(columns=["impression_id"]).num_rows < before
    assert "backfill" in tour.run(replay)
    assert DeltaTable(str(table)).to_pyarrow_table(columns=["impression_id"]).num_rows == before
    shutil.rmtree(tour.folder / ".tidemill")
