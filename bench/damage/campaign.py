"""The damage campaign: the findings of `verify` on damaged checkpoints, compared with what Spark does.

`python -m bench.damage.campaign` creates checkpoints and damages every file of each in every way. For each damage it
runs `verify`, starts Spark, and writes one line of JSON. The campaign takes hours, so it skips a checkpoint that
already has results. `report.py` turns the results into a page.
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

from bench.damage import environments
from bench.damage.damages import Damage, damages
from tidemill.checkpoint.verify import verify
from tidemill.connectors.registry import recognize
from tidemill.engines.dev.broker import Broker

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
"""The cases for Spark 3.5."""
RESULTS = Path(__file__).parents[2] / ".tidemill" / "damage"
RESTARTS = 400
"""The number of starts per JVM: failed starts leave state loaded, which adds up."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one damage.

    Attributes:
        spark: The version that created and started the checkpoint.
        case: The checkpoint.
        where: The damaged file or folder.
        damage: The kind of damage.
        outcome: `continues` like the undamaged checkpoint, `differs` from it, or `fails`.
        detail: The error, or the difference.
        errors: Codes of the findings of severity error at level full.
        warnings: Codes of the other findings that the undamaged checkpoint does not have.
        quick: True if `verify --quick` has an error too.
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
        """True if `verify` has an error exactly when Spark does not continue correctly."""
        return bool(self.errors) == (self.outcome != "continues")


class Spark:
    """A Spark of some version in its own process, which starts queries on request."""

    def __init__(self, python: str, jars: str) -> None:
        self._command = [python, str(HERE / "restart.py")]
        self._environment = {**os.environ, "TIDEMILL_TEST_JARS": jars}
        self._process: subprocess.Popen[str] | None = None
        self._starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def start(self, case: str, folder: Path) -> dict[str, Any]:
        """Start the case's query on a folder; return the rows, the state and the watermark, or the `error`."""
        if self._process is None or self._starts == RESTARTS:
            self._stop()
            self._starts = 0
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self._starts += 1
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise RuntimeError("The process has no pipes.")
        requests.write(json.dumps({"case": case, "folder": str(folder)}) + "\n")
        requests.flush()
        answer: dict[str, Any] = json.loads(answers.readline())
        return answer

    def _stop(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


def chosen(checkpoint: Path) -> Iterator[Damage]:
    """Yield every damage, of the state only those of the first partition: the others are alike."""
    for damage in damages(checkpoint):
        match damage.where.split("/"):
            case ["state", _, partition, *_] if partition.isdecimal() and partition != "0":
                pass
            case _:
                yield damage


def difference(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    """Describe how the result of a start differs from that of the undamaged checkpoint."""
    expected_rows, actual_rows = Counter(expected["rows"]), Counter(actual["rows"])
    return ", ".join(
        description
        for description, differs in (
            (f"{(expected_rows - actual_rows).total()} rows missing", expected_rows - actual_rows),
            (f"{(actual_rows - expected_rows).total()} rows too many", actual_rows - expected_rows),
            ("other state", expected["state"] != actual["state"]),
            ("other watermark", expected["watermark"] != actual["watermark"]),
        )
        if differs
    )


def judge(checkpoint: Path, sink_batch: int) -> tuple[list[str], list[str], bool]:
    """Return the codes of errors and of other findings at level full, and whether level quick has an error."""
    full = verify(checkpoint, level="full", recognize=recognize, sink_batch=sink_batch).findings
    errors = sorted({finding.code for finding in full if finding.severity == "error"})
    others = sorted({finding.code for finding in full if finding.severity != "error"})
    return (
        errors,
        others,
        not verify(checkpoint, level="quick", recognize=recognize, sink_batch=sink_batch).sound,
    )


def results_of(spark: Spark, version: str, case: str, scratch: Path) -> Iterator[Result]:
    """Create the case's checkpoint with new input and damage it: one result per damage.

    Raises:
        RuntimeError: The undamaged checkpoint has errors, or its starts fail or differ.
    """
    environments.make(scratch, case, "--waiting", version=version)
    checkpoint, kept = scratch / case / "checkpoint", scratch / "kept"
    shutil.copytree(checkpoint, kept)

    def restore() -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(kept, checkpoint)

    facts = json.loads((scratch / case / "facts.json").read_text())
    sink_batch = max(entry["batchId"] for entry in facts["progress"])
    errors, usual, _ = judge(checkpoint, sink_batch)
    expected = spark.start(case, scratch / case)
    restore()
    if errors or "error" in expected or spark.start(case, scratch / case) != expected:
        raise RuntimeError(
            f"{case}: the undamaged checkpoint has errors {errors}, or its starts differ: {expected}"
        )
    restore()
    for damage in track(list(chosen(checkpoint)), f"Spark {version}, {case}"):
        damage.apply(checkpoint)
        errors, others, quick = judge(checkpoint, sink_batch)
        actual = spark.start(case, scratch / case)
        detail = actual.get("error") or difference(expected, actual)
        outcome = "fails" if "error" in actual else "differs" if detail else "continues"
        warnings = sorted(set(others) - set(usual))
        yield Result(version, case, damage.where, damage.kind, outcome, detail, errors, warnings, quick)
        restore()


def main(
    cases: Annotated[list[str] | None, typer.Argument(help="The checkpoints; all by default.")] = None,
    *,
    version: Annotated[str, typer.Option("--spark", help="The version of Spark.")] = environments.OURS,
    into: Annotated[Path, typer.Option(help="The folder of the results.")] = RESULTS,
) -> None:
    """Damage checkpoints and write the results."""
    into.mkdir(parents=True, exist_ok=True)
    chosen_cases = cases or (OLD_CASES if version == environments.OLD else CASES)
    files = {case: into / f"{version}-{case}.jsonl" for case in chosen_cases}
    remaining = {case: results for case, results in files.items() if not results.exists()}
    with ExitStack() as stack:
        if "kafka" in remaining:
            broker = stack.enter_context(Broker())
            broker.create_topic("kafka", partitions=3)
            os.environ["TIDEMILL_TEST_KAFKA"] = broker.bootstrap
        spark = stack.enter_context(Spark(*environments.spark(version)))
        for case, results in remaining.items():
            with TemporaryDirectory() as scratch:
                lines = [
                    json.dumps(asdict(result)) for result in results_of(spark, version, case, Path(scratch))
                ]
            results.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
