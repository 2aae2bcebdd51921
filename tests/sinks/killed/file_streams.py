"""A stream into files whose run is killed: `python -m tests.sinks.killed.file_streams LAKE LANDING FOLDER`."""

import sys

from tests.sinks.killed.kafka_streams import sales_stream
from tests.support.killed import scratch_at
from tidemill import DeltaAppend, FileSink
from tidemill.run.pause_points import pause_point
from tidemill.storage.local_store import LocalStore
from tidemill.text.names import StreamName


class PausedStore(LocalStore):
    """A folder whose log gets no entry while a run waits there."""

    def create(self, key, data):
        pause_point("before-log-entry", StreamName("shops", "sales"))
        return super().create(key, data)


class PausedSink(FileSink):
    """A sink with a point to kill it at: its files are in the folder, and its log does not name them."""

    def connection(self, target):
        return PausedStore(super().connection(target).root)


def files_stream(sink, **declared):
    return sales_stream(sink, DeltaAppend(), **declared)


def main() -> None:
    lake, landing, folder = sys.argv[1:]
    scratch_at(lake, landing).run(files_stream(PausedSink(folder, "json")))


if __name__ == "__main__":
    main()
