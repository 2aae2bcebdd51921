"""What every table must contain: plain Python over the files that arrived and the decisions that were made."""

import json
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

HOUR = 3600
DELAY = 3600  # of the watermark, seconds
QUARANTINE = "quarantine"

Row = tuple[Any, ...]
Rows = Counter[Row]


@dataclass(frozen=True)
class Commit:
    """A commit of an append table, as its readers see it.

    Attributes:
        added: The rows that it adds.
        version: Its version if it removed rows, which a reader skips once it is accepted.
    """

    added: tuple[Row, ...] = ()
    version: int | None = None


@dataclass
class State:
    """A stream.

    Attributes:
        read: By argument: the names of the files, the number of commits, or the rows that it has read.
        accepted: By argument, the versions that it skips.
        commits: The commits of the main table.
        rows: The rows of the main table; for `log` their net count.
        further: The rows of further tables by sink.
        kept: What it keeps by key: the current change of a customer, the count of an open hour, a total.
        watermark: Seconds.
    """

    read: dict[str, Any] = field(default_factory=dict)
    accepted: dict[str, set[int]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    rows: Rows = field(default_factory=Counter)
    further: dict[str, Rows] = field(default_factory=dict)
    kept: dict[Any, Any] = field(default_factory=dict)
    watermark: int = 0


class Oracle:
    """The expected rows.

    Attributes:
        files: The files that are there now, by folder and name, each with its lines.
        topics: The messages of topics by feed.
        streams: The streams.
    """

    def __init__(self, streams: Mapping[str, object]) -> None:
        self.files: dict[str, dict[str, list[str]]] = {}
        self.topics: dict[str, list[str]] = {}
        self.streams = {name: State() for name in streams}

    def copy_of(self, stream: str) -> State:
        """Return a copy of a stream's state, for a backup of its folders."""
        return deepcopy(self.streams[stream])

    def must_refuse(self, stream: str, reads: Mapping[str, str]) -> bool:
        """Return whether a stream reads an append table with a removal that it has not accepted."""
        state = self.streams[stream]
        for argument, what in reads.items():
            kind, name = what.split(" ")
            position = state.read.get(argument)
            if kind == "rows" and isinstance(position, int):
                unread = self.streams[name].commits[position:]
                accepted = state.accepted.get(argument, set())
                if any(commit.version is not None and commit.version not in accepted for commit in unread):
                    return True
        return False

    def run(
        self,
        stream: str,
        reads: Mapping[str, str],
        *,
        folders: Mapping[str, str],
        further: list[str],
        deletes: bool,
    ) -> None:
        """Let a stream read everything that waits.

        Args:
            stream: The stream.
            reads: What it reads by argument.
            folders: The folder of each set of files.
            further: Its further sinks.
            deletes: Whether a change can delete a customer.
        """
        state = self.streams[stream]
        arrived: list[Any] = []
        names: dict[int, str] = {}
        for argument, what in reads.items():
            kind, name = what.split(" ")
            if name in self.topics:
                arrived += self.topics[name][state.read.get(argument, 0) :]
                state.read[argument] = len(self.topics[name])
            elif kind in ("feed", "files"):
                arrived += self._lines(state, argument, folders.get(name, name), ingest=kind == "feed")
            elif kind == "rows":
                rows = self._new_rows(state, argument, name)
                arrived += [row[:3] for row in rows] if stream == "sales" else rows
            elif kind == "changes":
                before = state.read.get(argument, Counter())
                now = self.streams[name].rows
                state.read[argument] = Counter(now)
                arrived.append((before, now))
            else:
                names = {row[0]: row[2] for row in self.streams[name].rows}
        if stream == "customers":
            self._merge(state, arrived, deletes=deletes)
        elif stream == "sales":
            self._append(state, [(*row, names.get(row[1])) for row in arrived], further)
        else:
            getattr(self, f"_{stream}")(state, arrived, further)

    def _lines(self, state: State, argument: str, folder: str, *, ingest: bool) -> list[Any]:
        read: set[str] = state.read.setdefault(argument, set())
        present = self.files.get(folder, {})
        new = sorted(set(present) - read)
        read.update(new)
        lines = [line for name in new for line in present[name]]
        if ingest:
            return lines
        return [(record["id"], record["customer"], record["amount"]) for record in map(json.loads, lines)]

    def _new_rows(self, state: State, argument: str, upstream: str) -> list[Row]:
        table, position = self.streams[upstream], state.read.get(argument)
        state.read[argument] = len(table.commits)
        if position is None:
            return list(table.rows.elements())
        return [row for commit in table.commits[position:] if commit.version is None for row in commit.added]

    def _append(self, state: State, rows: list[Row], further: list[str]) -> None:
        state.rows.update(rows)
        for sink in further:
            state.further.setdefault(sink, Counter()).update(rows)
        if rows:
            state.commits.append(Commit(tuple(rows)))

    def _orders(self, state: State, lines: list[str], further: list[str]) -> None:
        accepted: list[Row] = []
        refused = state.further.setdefault(QUARANTINE, Counter())
        for line in lines:
            try:
                order = json.loads(line)
            except ValueError:
                refused[line, ("unparsable",)] += 1
                continue
            if order["amount"] is None:
                refused[line, ("amount_known",)] += 1
            else:
                accepted.append((order["id"], order["customer"], order["amount"], order["at"]))
        self._append(state, accepted, further)

    _messages = _orders

    def _early(self, state: State, rows: list[Row], further: list[str]) -> None:
        self._append(state, [row[:1] for row in rows], further)

    _copy = _early

    def _merge(self, state: State, lines: list[str], *, deletes: bool) -> None:
        for line in lines:
            change = json.loads(line)
            key, seq = change["id"], change["seq"]
            if key not in state.kept or seq > state.kept[key][0]:
                state.kept[key] = (seq, None if deletes and change["removed"] else change["name"])
        state.rows = Counter((key, seq, name) for key, (seq, name) in state.kept.items() if name is not None)

    def _log(self, state: State, changes: list[tuple[Rows, Rows]], further: list[str]) -> None:
        del further
        for before, now in changes:
            for counted, sign in ((before, -1), (now, 1)):
                for (key, _, name), number in counted.items():
                    state.rows[key, name] += sign * number
        state.rows = Counter({row: number for row, number in state.rows.items() if number})

    def _mirror(self, state: State, changes: list[tuple[Rows, Rows]], further: list[str]) -> None:
        del further
        for _, now in changes:
            state.rows = Counter(now)

    def _unique(self, state: State, rows: list[Row], further: list[str]) -> None:
        new = {row[0] for row in rows} - set(state.kept)
        state.kept.update(dict.fromkeys(new, True))
        self._append(state, [(key,) for key in new], further)

    def _hourly(self, state: State, rows: list[Row], further: list[str]) -> None:
        """Count by hour; an hour gets its row once the watermark has passed its end."""
        del further
        for *_, at in rows:
            hour = at // HOUR * HOUR
            if hour + HOUR > state.watermark:
                state.kept[hour] = state.kept.get(hour, 0) + 1
        state.watermark = max([state.watermark, *(row[3] - DELAY for row in rows)])
        for hour in [hour for hour in state.kept if hour + HOUR <= state.watermark]:
            number = state.kept.pop(hour)
            known = next((n for h, n in state.rows if h == hour), 0)
            if number > known:
                state.rows.pop((hour, known), None)
                state.rows[hour, number] = 1

    def _totals(self, state: State, rows: list[Row], further: list[str]) -> None:
        del further
        for _, customer, amount, _ in rows:
            number, total = state.kept.get(customer, (0, 0))
            state.kept[customer] = (number + 1, total + amount)
        state.rows = Counter((key, *value) for key, value in state.kept.items())
