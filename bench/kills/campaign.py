"""`make kills`: real runs are killed with SIGKILL at random moments, and every table must equal its oracle.

A round is a new lake. Its input arrives in steps. After each arrival `tidemill run` is started and killed several
times, and then runs to its end: it must exit with 0. Victims are, at random, the whole process group, the command
alone, or its JVM alone. After the last step a run must find nothing to do, the ledger must have each batch once,
the checkpoints must be sound, and every table must equal the oracle. The first run of every stream is killed in
each round.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer

from bench.kills.worlds import ROOT, WORLDS, World
from tidemill.checkpoint.verify import verify
from tidemill.connectors.registry import recognize
from tidemill.records.stream_records import StreamRecords

TIDEMILL = Path(sys.executable).with_name("tidemill")
VICTIMS = ("all", "command", "jvm")
KILLS_PER_STEP = 4
FOR_RUN_S = 900
FOR_END_S = 120  # an orphaned JVM ends by itself
REPORT = ROOT / ".tidemill" / "kills.json"


class CampaignError(Exception):
    """A promise was broken."""


@dataclass
class Tally:
    """The numbers of the report."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    kills_by_world: Counter[str] = field(default_factory=Counter)
    batches_begun: int = 0
    runs: int = 0
    rounds: int = 0
    slowest_end_s: float = 0.0

    @property
    def total(self) -> int:
        """All kills."""
        return self.kills.total()


@dataclass
class Run:
    """One `tidemill run`, in a process group of its own."""

    world: World
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.log = self.world.folder / "run.log"
        self.output = self.world.folder / "run.json"
        with self.log.open("w") as log, self.output.open("w") as output:
            self.process = subprocess.Popen(
                [TIDEMILL, "run", "--json", *self.world.flags],
                cwd=self.world.folder,
                stdout=output,
                stderr=log,
                start_new_session=True,
            )

    def group(self) -> list[psutil.Process]:
        """Return the processes of the run that are alive."""
        alive = []
        for process in psutil.process_iter(["name", "status"]):
            try:
                if (
                    os.getpgid(process.pid) == self.process.pid
                    and process.info["status"] != psutil.STATUS_ZOMBIE
                ):
                    alive.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return alive

    def wait(self, seconds: float) -> bool:
        """Return whether the run ended within this time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self, victim: str) -> float:
        """Kill with SIGKILL; return the seconds until every process of the run has ended.

        Before there is a JVM, the command is killed instead of it.
        """
        killed, group = time.monotonic(), self.group()
        jvms = [process for process in group if process.info["name"] == "java"]
        command = [process for process in group if process.pid == self.process.pid]
        victims = {"all": group, "command": command, "jvm": jvms or command}
        for process in victims[victim]:
            with suppress(psutil.NoSuchProcess):  # a JVM forks processes that end within milliseconds
                process.send_signal(signal.SIGKILL)
        while self.group():
            self.process.poll()
            if time.monotonic() - killed > FOR_END_S:
                raise CampaignError(f"{victim} was killed, and {self.group()} did not end")
            time.sleep(0.05)
        self.process.wait()
        return time.monotonic() - killed

    def check_success(self) -> None:
        """Raise CampaignError unless the run ended with 0."""
        if self.process.returncode != 0:
            raise CampaignError(
                f"a run failed with {self.process.returncode}:\n{self.log.read_text()}\n{self.output.read_text()}"
            )


def _newest_batches(world: World) -> dict[str, tuple[int, int]]:
    """Return the newest offsets and commits entry per stream."""
    newest = {}
    for stream in world.pipeline:
        checkpoint = world.scratch.lake.checkpoint(stream.name, 1)
        newest[str(stream.name)] = tuple(
            max((int(name) for name in checkpoint.names(log) if name.isdecimal()), default=-1)
            for log in ("offsets", "commits")
        )
    return newest  # type: ignore[return-value]


def _check_end(world: World) -> None:
    """Raise CampaignError unless all is idle, recorded once, sound, and equal to the oracle."""
    run = Run(world)
    run.wait(FOR_RUN_S)
    run.check_success()
    outcomes = {
        stream["stream"]: stream["outcome"] for stream in json.loads(run.output.read_text())["streams"]
    }
    problems = [
        f"{stream} is {outcome}, not idle" for stream, outcome in outcomes.items() if outcome != "idle"
    ]
    for stream in world.pipeline:
        records = StreamRecords(world.scratch.lake, stream.name)
        batches = sorted(line.batch_id for line in records.ledger.lines())
        newest = _newest_batches(world)[str(stream.name)][1]
        if batches != list(range(newest + 1)):
            problems.append(
                f"{stream.name}: the ledger has the batches {batches}, the checkpoint 0 to {newest}"
            )
        table, checkpoint = records.snapshot().main_table, world.scratch.lake.checkpoint(stream.name, 1)
        in_table = None if table is None else table.newest_batch
        findings = verify(checkpoint, level="full", recognize=recognize, sink_batch=in_table).findings
        problems += [f"{stream.name}: {finding}" for finding in findings if finding.severity == "error"]
    problems += world.differences()
    if problems:
        raise CampaignError("\n".join(problems))


def _round(world: World, chance: random.Random, tally: Tally, kills: int) -> None:
    """Play one round; `tally` counts at most `kills` kills."""
    typical_s = 25.0
    for step in range(world.steps):
        world.arrive(step)
        for _ in range(KILLS_PER_STEP):
            if tally.total == kills:
                break
            run = Run(world)
            tally.runs += 1
            victim, moment_s = chance.choice(VICTIMS), chance.uniform(0.3, typical_s)
            if run.wait(moment_s):
                run.check_success()
                print(f"  step {step}: ended after {time.monotonic() - run.started:.1f} s, before its kill")
                break
            end_s = run.kill(victim)
            tally.slowest_end_s = max(tally.slowest_end_s, end_s)
            tally.kills[victim] += 1
            tally.kills_by_world[world.name] += 1
            begun = [name for name, (offset, commit) in _newest_batches(world).items() if offset > commit]
            tally.batches_begun += bool(begun)
            print(
                f"  step {step}: kill {tally.total} of {kills}: {victim} after {moment_s:.1f} s, ended in "
                f"{end_s:.1f} s; uncommitted: {', '.join(begun) or 'none'}",
                flush=True,
            )
        run = Run(world)
        tally.runs += 1
        if not run.wait(FOR_RUN_S):
            run.kill("all")
            raise CampaignError(f"a run did not end within {FOR_RUN_S} s:\n{run.log.read_text()}")
        run.check_success()
        # One that follows a run that ended before its kill finds nothing to do, and ends before Spark would start.
        typical_s = max(typical_s, time.monotonic() - run.started)
        print(f"  step {step}: completed in {typical_s:.1f} s", flush=True)
    _check_end(world)


def main(
    kills: Annotated[int, typer.Option(min=1, help="Kills in all.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the moments and victims.")] = 1,
    only: Annotated[
        str, typer.Option("--world", help="Only worlds with this in their name, such as S3.")
    ] = "",
) -> None:
    """Kill runs at random moments and compare every table with its oracle."""
    chance, tally = random.Random(seed), Tally(seed)
    worlds = [world for world in WORLDS if only in world.name]
    with tempfile.TemporaryDirectory(prefix="tidemill-kills-") as folder:
        while tally.total < kills:
            kind = worlds[tally.rounds % len(worlds)]
            print(f"round {tally.rounds}: {kind.name}", flush=True)
            world = kind(Path(folder) / f"round-{tally.rounds}", seed=seed + tally.rounds)
            try:
                _round(world, chance, tally, kills)
            except CampaignError as error:
                kept = Path(tempfile.mkdtemp(prefix="tidemill-kills-failed-"))
                world.folder.rename(kept / "round")
                print(f"FAILED in round {tally.rounds} with seed {seed}: {error}\nIts lake is kept: {kept}")
                raise typer.Exit(1) from None
            world.close()
            tally.rounds += 1
    report = {
        "seed": seed,
        "kills": tally.total,
        "kills_by_victim": dict(tally.kills),
        "kills_by_world": dict(tally.kills_by_world),
        "kills_that_left_an_uncommitted_batch": tally.batches_begun,
        "rounds": tally.rounds,
        "runs": tally.runs,
        "slowest_end_s": round(tally.slowest_end_s, 1),
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    typer.run(main)
