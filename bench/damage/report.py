"""The page of the damage campaign, `docs/damage.md`, from its results.

`python -m bench.damage.report` fails if a disagreement between `verify` and Spark has no reason in this module:
either the reader is wrong, or the reason is missing here.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.damage.campaign import RESULTS, Result

PAGE = Path(__file__).parents[2] / "docs" / "damage.md"
DAMAGES = {
    "delete": "deleted without its checksum file",
    "delete with checksum": "deleted with its checksum file",
    "empty": "emptied",
    "truncate": "truncated to half its size",
    "flip": "one bit flipped",
    "duplicate": "copied to the next number",
    "swap": "swapped with the previous number",
    "delete folder": "folder deleted",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why `verify` and Spark disagree about some damages.

    Attributes:
        damages: The kinds of damage.
        where: The damaged path, a regular expression.
        outcome: What Spark did.
        why: The reason, for the page.
        detail: Spark's error or the difference, a regular expression.
        checkpoints: The checkpoints in which the reason was confirmed, a regular expression over Spark's version
            and the checkpoint's name. The reason explains no other checkpoint.
    """

    damages: tuple[str, ...]
    where: str
    outcome: str
    why: str
    detail: str = ""
    checkpoints: str = ".*"

    def explains(self, result: Result) -> bool:
        """Return whether this is the reason for a disagreement."""
        return (
            result.damage in self.damages
            and result.outcome == self.outcome
            and re.fullmatch(self.where, result.where) is not None
            and re.search(self.detail, result.detail) is not None
            and re.fullmatch(self.checkpoints, f"{result.spark} {result.case}") is not None
        )


REASONS: tuple[Reason, ...] = (
    Reason(
        damages=("flip",),
        where=r"sources/\w+/\d+(\.compact)?",
        outcome="differs",
        why="The line stays well formed and names another input file: Spark takes the right file for a new one and "
        "reads it again. Only the checksum shows it, which Spark does not compare: `wrong-checksum`, a warning.",
    ),
    Reason(
        damages=("flip",),
        where=r"offsets/\d+",
        outcome="fails",
        why="The file stays well formed, and a pinned setting gets an invalid value or one that does not match the "
        "state: `wrong-checksum`, a warning. Spark refuses the value or the state with an error that names it.",
        detail=r"INVALID_CONF_VALUE|SCHEMA_NOT_COMPATIBLE|should be boolean",
    ),
    Reason(
        damages=("flip",),
        where=r"state/\d+/\d+/([\w-]+/)?_metadata/schema|state/\d+/_stateSchema/.+",
        outcome="fails",
        why="The schema stays well formed and names a type or a column that does not exist: `wrong-checksum`, a "
        "warning. Spark refuses it with an error that names it.",
    ),
    Reason(
        damages=("swap",),
        where=r"state/.+/\d+\.(delta|changelog|snapshot|zip)",
        outcome="differs",
        why="Both are sound files with their checksums, and their content does not show their version. With state "
        "ids their names show it.",
    ),
    Reason(
        damages=("swap",),
        where=r"state/\d+/\d+/\w+-keyToNumValues/\d+\.(delta|changelog)",
        outcome="fails",
        why="The same in a join: its numbers of values then do not match its values, and Spark does not find a "
        "value that it expects.",
    ),
    Reason(
        damages=("flip",),
        where=r"state/.+/\d+\.(delta|changelog)",
        outcome="continues",
        why="The bit is in the block that ends the stream. Spark stops at its own end marker before that block and "
        "never reads the block; `verify` reads to the end.",
        checkpoints=r"4\.2 chained|3\.5 join-v2",
    ),
    Reason(
        damages=("flip",),
        where=r"state/\d+/_metadata/metadata",
        outcome="continues",
        why="The name of a store changed. Spark 4.2 does not compare the name; `verify` expects state under the new "
        "name, and also reports `wrong-checksum` for the file.",
        checkpoints=r"4\.2 chained",
    ),
    Reason(
        damages=("delete with checksum",),
        where=r"sources/\w+/\d+",
        outcome="continues",
        why="Spark took the next new files for those of the entry and silently lost them. The output of this query "
        "does not show the loss: rows of an outer join are counted with or without a match.",
        checkpoints=r"4\.2 chained",
    ),
    Reason(
        damages=("delete folder", "delete with checksum", "duplicate"),
        where=r"commits(/\d+)?|offsets/\d+",
        outcome="fails",
        why="The remaining checkpoint has a batch without new data to repeat, which is sound. In a join, Spark 3.5 "
        "plans such a batch with columns of another nullability and refuses the state as incompatible.",
        detail=r"Python Proxy",
        checkpoints=r"3\.5 join-v2",
    ),
    Reason(
        damages=("delete with checksum",),
        where=r"metadata",
        outcome="continues",
        why="Spark 3.5 gives the query a new id and continues. This is correct only if no batch is to be repeated: a "
        "sink that identifies batches by the id, as Delta does, would write that batch twice. Spark 4.2 does not "
        "start.",
        checkpoints=r"3\.5 .*",
    ),
    Reason(
        damages=("delete folder",),
        where=r"state(/\d+)?",
        outcome="fails",
        why="Without state ids nothing else in a checkpoint reveals its last operator, nor, without a watermark, that "
        "there was state at all. Spark knows the operators from the query's plan and refuses to start.",
        detail=r"MISSING_STATE_DIRECTORY|NOT_MATCH_IN_STATE_METADATA",
    ),
)


def kind_of(where: str) -> str:
    """Return a file's path with numbers, ids and names replaced, so that files of the same kind are grouped."""
    folder, _, name = where.rpartition("/")
    checksum = name.startswith(".") and name.endswith(".crc")
    path = f"{folder}/{name[1:-4] if checksum else name}".lstrip("/")
    path = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", path)
    path = re.sub(r"^(offsets|commits)/\d+", r"\1/N", path)
    path = re.sub(r"^sources/[^/]+", "sources/S", path)
    path = re.sub(r"^(sources/S)/\d+", r"\1/N", path)
    path = re.sub(r"^state/\d+", "state/O", path)
    path = re.sub(r"^(state/O)/\d+", r"\1/P", path)
    path = re.sub(r"^(state/O/P)/[a-z][\w-]*(?=/|$)", r"\1", path)
    path = re.sub(r"/\d+(?=[._][^/]*$)", "/V", path)
    path = re.sub(r"/[^/]*\.sst", "/NAME.sst", path)
    path = re.sub(r"(_metadata/v2|_stateSchema/[^/]+)/[^/]+$", r"\1/NAME", path)
    return f"checksum of {path}" if checksum else path


def read(folder: Path) -> list[Result]:
    """Return all results of a campaign."""
    return [
        Result(**json.loads(line))
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]


def unexplained(results: Iterable[Result]) -> list[Result]:
    """Return the disagreements that no reason explains."""
    return [
        result
        for result in results
        if not result.agreed and not any(reason.explains(result) for reason in REASONS)
    ]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def matrix(results: Iterable[Result]) -> str:
    """Return the number of damages and of disagreements for each kind of file and damage."""
    cells: dict[str, dict[str, Counter[bool]]] = defaultdict(lambda: defaultdict(Counter))
    for result in results:
        cells[kind_of(result.where)][result.damage][result.agreed] += 1

    def cell(counts: Counter[bool] | None) -> str:
        if not counts:
            return ""
        return f"{counts.total()}" + (f" (**{counts[False]}**)" if counts[False] else "")

    rows = (
        [f"checksum of `{kind[12:]}`" if kind.startswith("checksum of ") else f"`{kind}`"]
        + [cell(by_damage.get(damage)) for damage in DAMAGES]
        for kind, by_damage in sorted(
            cells.items(), key=lambda item: (item[0].startswith("checksum of "), item[0])
        )
    )
    return table(["", *DAMAGES], rows)


def exceptions(results: Sequence[Result]) -> str:
    """Return the disagreements by their reasons."""
    rows = []
    for reason in REASONS:
        explained = [result for result in results if not result.agreed and reason.explains(result)]
        if explained:
            files = ", ".join(f"`{kind}`" for kind in sorted({kind_of(result.where) for result in explained}))
            kinds = ", ".join(
                damage for damage in DAMAGES if any(damage == result.damage for result in explained)
            )
            verdict = "an error" if explained[0].errors else "no error"
            rows.append([len(explained), files, kinds, explained[0].outcome, verdict, reason.why])
    return table(["cases", "file", "damage", "Spark", "`verify`", "reason"], rows)


PAGE_TEXT = """\
# Damaged checkpoints

<!-- written by `make damage`; do not edit -->

This page compares the findings of `tidemill checkpoint verify` on damaged checkpoints with what Spark does. The
campaign damaged every file and every folder of the {checkpoints} checkpoints below in each of these ways (of the
state, only the files of the first partition):

{damages}

For each damage, `verify` checked the checkpoint and compared it with the newest batch in the sink. Then Spark started
the query on it with new input. The sink identifies batches by query id and number, as Delta does.

- *Continues*: the start ended, and the rows that it added, the number of rows in its state and its watermark equal
  those of a start on the undamaged checkpoint.
- *Differs*: the start ended, and at least one of them is different.
- *Fails*: the start failed.

{totals}

{by_checkpoint}

## Disagreements and their reasons

{exceptions}

## All damages

The number of damages of each kind, with the number of disagreements in parentheses. `S` is a source, `O` an operator,
`P` a partition, `N` a batch, `V` a version.

{matrix}
"""


def totals(results: Sequence[Result]) -> str:
    """Return a table of what Spark did and how often `verify` predicted it."""
    rows = []
    for outcome in ("continues", "differs", "fails"):
        of_outcome = [result for result in results if result.outcome == outcome]
        errors = [result for result in of_outcome if result.errors]
        quick = sum(result.quick for result in errors)
        rows.append([outcome, len(of_outcome), len(errors), quick, len(of_outcome) - len(errors)])
    head = ["Spark", "damages", "`verify`: an error", "`--quick` too", "`verify`: no error"]
    return table(head, ([f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows))


def page(results: Sequence[Result]) -> str:
    """Return the whole page."""
    checkpoints = Counter((result.spark, result.case) for result in results)
    disagreements = Counter((result.spark, result.case) for result in results if not result.agreed)
    return PAGE_TEXT.format(
        checkpoints=len(checkpoints),
        damages=table(["damage", "meaning"], DAMAGES.items()),
        totals=totals(results),
        by_checkpoint=table(
            ["checkpoint", "Spark", "damages", "disagreements"],
            (
                [name, spark, count, disagreements[spark, name]]
                for (spark, name), count in checkpoints.items()
            ),
        ),
        exceptions=exceptions(results),
        matrix=matrix(results),
    )


def main() -> None:
    """Write the page."""
    results = read(RESULTS)
    PAGE.write_text(page(results))
    remaining = unexplained(results)
    for result in remaining:
        sys.stderr.write(f"unexplained: {result}\n")
    sys.exit(bool(remaining))


if __name__ == "__main__":
    main()
