"""Backfills and rebuilds of the whole pipeline `ads`, compared with the oracle."""

from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from deltalake import DeltaTable

from pipelines.ads import ads
from pipelines.ads.generate import generate
from tests.pipelines.ads import oracle
from tests.pipelines.ads.tables import ALL, assert_equal, tables
from tests.pipelines.ads.test_pipeline import EVENTS, arrive, run_all
from tidemill.definitions.selection import select
from tidemill.operations.edits.accept import accept_version
from tidemill.operations.replay.backfill import replay_range
from tidemill.operations.replay.rebuild import rebuild
from tidemill.storage.table_ref import TableRef

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1800)]


@pytest.fixture
def pieces(tmp_path):
    """Return the names of fourteen pieces of events, in the order of their arrival."""
    generate(out=tmp_path / "prepared", events=EVENTS, seed=11, files=14)
    return sorted({file.name for file in (tmp_path / "prepared").rglob("*.json")})


class Reader:
    """A thread that counts the rows of tables as fast as it can."""

    def __init__(self, folders):
        self.counts = {folder: [] for folder in folders}
        self.errors = []
        self._stopped = Event()
        self._thread = Thread(target=self._read)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()

    def _read(self):
        while not self._stopped.is_set():
            for folder, counts in self.counts.items():
                try:
                    counts.append(DeltaTable(str(folder)).count())
                except Exception as error:  # noqa: BLE001 - whatever a reader meets is a defect
                    self.errors.append(error)


def test_every_stream_is_rebuilt_while_readers_query_and_events_arrive(scratch, tmp_path, pieces):
    arrive(scratch, tmp_path / "prepared", pieces[:7], 1_700_000_000)
    run_all(scratch)
    folders = [Path(scratch.lake.table(stream.name).uri) for stream in ads]
    before = {folder: DeltaTable(str(folder)).count() for folder in folders}
    arrive(scratch, tmp_path / "prepared", pieces[7:], 1_700_000_007)
    with Reader(folders) as reader:
        for stream in ads:
            rebuild(stream, scratch.target, scratch.engine)
    assert not reader.errors
    for folder, counts in reader.counts.items():
        assert min(counts) >= before[folder], f"{folder}: a reader met a table that is not complete"
    run_all(scratch)
    assert_equal(tables(scratch), oracle.expected(tmp_path / "prepared"))


def test_a_day_that_a_delete_removed_is_restored_with_everything_downstream(scratch, tmp_path, pieces):
    arrive(scratch, tmp_path / "prepared", pieces[:7], 1_700_000_000)
    run_all(scratch)
    impressions = ads["impressions"]
    table = Path(scratch.lake.table(impressions.name).uri)
    # Some events are of other days, to test the edges of a pipeline.
    [((first,), _)] = scratch.rows(impressions, "event_date").most_common(1)
    day, next_day = first.isoformat(), (first + timedelta(days=1)).isoformat()
    deletion = f"DELETE FROM delta.`{table}` WHERE event_date = '{day}' AND minute(event_time) < 20"  # noqa: S608
    scratch.engine.new().sql(deletion)
    version = TableRef.at(table).log.latest_version()
    # Its reader would refuse the deletion: nobody knows what else it removed.
    accept_version(ads["unique_impressions"], scratch.target, impressions.name, version)
    arrive(scratch, tmp_path / "prepared", pieces[7:], 1_700_000_007)
    for stream in (
        ads["campaigns"],
        impressions,
    ):  # campaigns are announced before the events that they apply to
        scratch.run(stream)
    streams = select(tuple(ads), ["ads/impressions+"])
    changes = [
        replay_range(
            stream,
            scratch.target,
            scratch.engine,
            begin=day,
            end=next_day,
            run_id=f"replay-{stream.name.stream}",
            selected={impressions.name},
        )
        for stream in streams
    ]
    assert [change.stream for change in changes] == [stream.name for stream in streams]
    (totals,) = [change for change in changes if change.stream.stream == "campaign_totals"]
    assert totals.effects[0].startswith("It is rebuilt as a whole: its rows are running totals")
    own = [commit for commit in TableRef.at(table).log.commits(version + 1) if commit.removes_rows]
    assert len(own) == 1, "the range was replaced in one commit"
    run_all(scratch)
    assert_equal(tables(scratch, ALL), oracle.expected(tmp_path / "prepared"))
