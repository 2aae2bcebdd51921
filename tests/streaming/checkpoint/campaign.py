"""The damage campaign: what `verify` says of damaged checkpoints, against what Spark makes of them.

`python -m tests.streaming.checkpoint.campaign` makes checkpoints, damages every file of each in every way, asks
`verify`, starts Spark on it, and writes a line of JSON for each. It takes hours, so a checkpoint whose results
are there already is left out. `report.py` makes a page of the results.
"""

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.progress import track

from pipelines.streaming.checkpoint import verify
from resources.dev.broker import Broker
from tests.streaming.checkpoint import environments
from tests.streaming.checkpoint.damage import Damage, damages

HERE = Path(__file__).parent
CASES = (
    "stateless",
    "stateless-named",
    "stateless-long",
    "rate",
    "kafka",
    "delta",
    "windows-hdfs",
    "windows-pending",
    "windows-rocksdb",
    "windows-changelog-long",
    "windows-ids",
    "sessions",
    "distinct",
    "join-v3",
    "chained",
    "with-state",
)
OLD_CASES = ("stateless", "windows-hdfs", "windows-rocksdb", "windows-changelog", "sessions", "join-v2")
"""Those for Spark 3.5."""
RESULTS = Path(__file__).parents[3] / ".tidemill" / "damage"
RESTARTS = 400
"""Starts of one JVM: what failed starts leave loaded adds up."""


@dataclass(frozen=True, slots=True)
class Result:
    """One damage.

    Attributes:
        spark: The version that made and started the checkpoint.
        case: The checkpoint.
        where: The damaged file or folder.
        damage: What was done to it.
        outcome: `continues` as the undamaged one does, `differs` from it, or `fails`.
        detail: The error, or what differs.
        errors: Codes of the findings of severity error, full.
        warnings: Codes of the other findings that the undamaged one does not have.
        quick: Whether `verify --quick` found an error too.
    """

    spark: str
    case: str
    where: str
    damage: str
    outcome: str
    detail: str
    errors: list[str]
    warnings: list[str]
    quick: bool

    @property
    def agreed(self) -> bool:
        """Whether there is an error finding exactly where Spark does not go on rightly."""
        return bool(self.errors) == (self.outcome != "continues")


class Spark:
    """A Spark of some version in a process of its own, which starts queries on request."""

    def __init__(self, python: str, jars: str) -> None:
        self._command = [python, str(HERE / "restart.py")]
        self._environment = {**os.environ, "TIDEMILL_TEST_JARS": jars}
        self._process: subprocess.Popen[str] | None = None
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def start(self, case: str, folder: Path) -> dict[str, Any]:
        """What a start of the case's query on that folder adds and leaves, or its `error`."""
        if self._process is None or self._asked == RESTARTS:
            self._stop()
            self._asked = 0
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self._asked += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"case": case, "folder": str(folder)}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def _stop(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


def chosen(checkpoint: Path) -> Iterator[Damage]:
    """Every damage, but of the state the first partition alone: the others are its like."""
    for damage in damages(checkpoint):
        match damage.where.split("/"):
            case ["state", _, partition, *_] if partition.isdecimal() and partition != "0":
                pass
            case _:
                yield damage


def difference(expected: dict[str, Any], got: dict[str, Any]) -> str:
    """In what a start that ended differs from that of the undamaged checkpoint."""
    wanted, seen = (Counter(each["rows"]) for each in (expected, got))
    return ", ".join(
        text
        for text, differs in (
            (f"{(wanted - seen).total()} rows missing", wanted - seen),
            (f"{(seen - wanted).total()} rows too many", seen - wanted),
            ("other state", expected["state"] != got["state"]),
            ("other watermark", expected["watermark"] != got["watermark"]),
        )
        if differs
    )


def judge(checkpoint: Path) -> tuple[list[str], list[str], bool]:
    """Codes of errors and of the rest at level full, and whether level quick has an error."""
    full = verify(checkpoint, level="full").findings
    errors = sorted({finding.code for finding in full if finding.severity == "error"})
    others = sorted({finding.code for finding in full if finding.severity != "error"})
    return errors, others, not verify(checkpoint, level="quick").sound


def results_of(spark: Spark, version: str, case: str, scratch: Path) -> Iterator[Result]:
    """Makes the case's checkpoint, with new input waiting behind it, and damages it: one result a damage."""
    environments.make(scratch, case, "--waiting", version=version)
    checkpoint, kept = scratch / case / "checkpoint", scratch / "kept"
    shutil.copytree(checkpoint, kept)

    def restore() -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(kept, checkpoint)

    errors, usual, _ = judge(checkpoint)
    assert not errors, f"{case}: errors in the undamaged checkpoint: {errors}"
    expected = spark.start(case, scratch / case)
    assert "error" not in expected, f"{case}: {expected}"
    restore()
    assert spark.start(case, scratch / case) == expected, f"{case}: two starts differ"
    restore()
    for damage in track(list(chosen(checkpoint)), f"Spark {version}, {case}"):
        damage.apply(checkpoint)
        errors, others, quick = judge(checkpoint)
        got = spark.start(case, scratch / case)
        detail = got.get("error") or difference(expected, got)
        outcome = "fails" if "error" in got else "differs" if detail else "continues"
        warnings = sorted(set(others) - set(usual))
        yield Result(version, case, damage.where, damage.kind, outcome, detail, errors, warnings, quick)
        restore()


def main(
    cases: Annotated[list[str] | None, typer.Argument(help="Checkpoints; all of them by default.")] = None,
    *,
    version: Annotated[str, typer.Option("--spark", help="The version of Spark.")] = environments.OURS,
    into: Annotated[Path, typer.Option(help="Where the results go.")] = RESULTS,
) -> None:
    """Damages checkpoints and writes what came of it."""
    into.mkdir(parents=True, exist_ok=True)
    chosen_cases = cases or (OLD_CASES if version == environments.OLD else CASES)
    target = {case: into / f"{version}-{case}.jsonl" for case in chosen_cases}
    left = {case: results for case, results in target.items() if not results.exists()}
    with ExitStack() as stack:
        if "kafka" in left:
            broker = stack.enter_context(Broker())
            broker.create_topic("kafka", partitions=3)
            os.environ["TIDEMILL_TEST_KAFKA"] = broker.bootstrap
        spark = stack.enter_context(Spark(*environments.spark(version)))
        for case, results in left.items():
            with TemporaryDirectory() as made:
                lines = [
                    json.dumps(asdict(result)) for result in results_of(spark, version, case, Path(made))
                ]
            results.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
