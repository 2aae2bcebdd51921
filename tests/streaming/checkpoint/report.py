"""The page of the damage campaign, `docs/damage.md`, from its results.

`python -m tests.streaming.checkpoint.report` fails when a disagreement between `verify` and Spark has no reason
here: either the reader is wrong, or a reason is to be written down.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.streaming.checkpoint.campaign import RESULTS, Result

PAGE = Path(__file__).parents[3] / "docs" / "damage.md"
DAMAGES = {
    "delete": "deleted, its sums left behind",
    "delete with sums": "deleted with its sums",
    "empty": "emptied",
    "truncate": "cut to half",
    "flip": "one bit flipped",
    "duplicate": "copied under the next number",
    "swap": "swapped with the one before",
    "folder gone": "folder deleted",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why `verify` and Spark disagree about some damages.

    Attributes:
        damages: The kinds of damage.
        where: What the damaged place looks like, a regular expression.
        outcome: What Spark did.
        why: The reason, for the page.
        detail: What Spark's error or the difference looks like, a regular expression.
        seen: In which checkpoints, a regular expression over Spark's version and the checkpoint's name: a reason
            that was looked into in some explains no others.
    """

    damages: tuple[str, ...]
    where: str
    outcome: str
    why: str
    detail: str = ""
    seen: str = ".*"

    def explains(self, result: Result) -> bool:
        """Whether this is the reason for a disagreement."""
        return (
            result.damage in self.damages
            and result.outcome == self.outcome
            and re.fullmatch(self.where, result.where) is not None
            and re.search(self.detail, result.detail) is not None
            and re.fullmatch(self.seen, f"{result.spark} {result.case}") is not None
        )


REASONS: tuple[Reason, ...] = (
    Reason(
        damages=("flip",),
        where=r"sources/\w+/\d+(\.compact)?",
        outcome="differs",
        why="The line stays well formed and names another input file: Spark takes the right one for new and reads "
        "it again. Only the sums tell, which Spark does not compare: `wrong-sum`, a warning.",
    ),
    Reason(
        damages=("flip",),
        where=r"offsets/\d+",
        outcome="fails",
        why="The file stays well formed and a pinned setting gets a value that it cannot have, or that the state "
        "does not fit: `wrong-sum`, a warning. Spark refuses the value, or the state, by name.",
        detail=r"INVALID_CONF_VALUE|SCHEMA_NOT_COMPATIBLE|should be boolean",
    ),
    Reason(
        damages=("flip",),
        where=r"state/\d+/\d+/([\w-]+/)?_metadata/schema|state/\d+/_stateSchema/.+",
        outcome="fails",
        why="The schema stays well formed and names a type or a column that there is not: `wrong-sum`, a warning. "
        "Spark refuses it by name.",
    ),
    Reason(
        damages=("swap",),
        where=r"state/.+/\d+\.(delta|changelog|snapshot|zip)",
        outcome="differs",
        why="Both are sound files with their sums, and nothing in them says of which version they are. With "
        "state ids the names tell.",
    ),
    Reason(
        damages=("swap",),
        where=r"state/\d+/\d+/\w+-keyToNumValues/\d+\.(delta|changelog)",
        outcome="fails",
        why="The same in a join: its numbers of values then do not fit its values, and Spark looks for what is not "
        "there.",
    ),
    Reason(
        damages=("flip",),
        where=r"state/.+/\d+\.(delta|changelog)",
        outcome="continues",
        why="The bit is in the block that ends the stream. Spark stops at its own mark before that block and never "
        "reads it; `verify` reads to the end.",
        seen=r"4\.2 chained|3\.5 join-v2",
    ),
    Reason(
        damages=("flip",),
        where=r"state/\d+/_metadata/metadata",
        outcome="continues",
        why="The name of a store is another one. Spark 4.2 does not compare it; `verify` looks for the state of that "
        "name, and also says `wrong-sum` of the file.",
        seen=r"4\.2 chained",
    ),
    Reason(
        damages=("delete with sums",),
        where=r"sources/\w+/\d+",
        outcome="continues",
        why="Spark took the next new files for those of the entry, and they were lost without a word. What this "
        "query gives out does not show it: rows of an outer join are counted with or without a match.",
        seen=r"4\.2 chained",
    ),
    Reason(
        damages=("folder gone", "delete with sums", "duplicate"),
        where=r"commits(/\d+)?|offsets/\d+",
        outcome="fails",
        why="What is left is a batch without new data that is to be repeated, which is sound. In a join Spark 3.5 "
        "plans such a batch with columns of another nullability and refuses the state as not compatible.",
        detail=r"Python Proxy",
        seen=r"3\.5 join-v2",
    ),
    Reason(
        damages=("delete with sums",),
        where=r"metadata",
        outcome="continues",
        why="Spark 3.5 gives the query a new id and goes on. That is right only while no batch is to be repeated: a "
        "sink that knows batches by the id, as Delta does, would write that batch twice. Spark 4.2 does not start.",
        seen=r"3\.5 .*",
    ),
    Reason(
        damages=("folder gone",),
        where=r"state(/\d+)?",
        outcome="fails",
        why="Without state ids nothing else in a checkpoint tells of its last operator, nor, without a watermark, "
        "that there was state at all. Spark sees it in the query's plan and refuses to start.",
        detail=r"MISSING_STATE_DIRECTORY|NOT_MATCH_IN_STATE_METADATA",
    ),
)


def kind_of(where: str) -> str:
    """A file's place with numbers, ids and names replaced, so that files of the same use fall together."""
    folder, _, name = where.rpartition("/")
    sums = name.startswith(".") and name.endswith(".crc")
    path = f"{folder}/{name[1:-4] if sums else name}".lstrip("/")
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
    return f"sums of {path}" if sums else path


def read(folder: Path) -> list[Result]:
    """All results of a campaign."""
    return [
        Result(**json.loads(line))
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]


def unexplained(results: Iterable[Result]) -> list[Result]:
    """The disagreements that no reason explains."""
    return [
        result
        for result in results
        if not result.agreed and not any(reason.explains(result) for reason in REASONS)
    ]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def matrix(results: Iterable[Result]) -> str:
    """For each kind of file and damage, how many there were and in how many the two disagree."""
    cells: dict[str, dict[str, Counter[bool]]] = defaultdict(lambda: defaultdict(Counter))
    for result in results:
        cells[kind_of(result.where)][result.damage][result.agreed] += 1

    def cell(counts: Counter[bool] | None) -> str:
        if not counts:
            return ""
        return f"{counts.total()}" + (f" (**{counts[False]}**)" if counts[False] else "")

    rows = (
        [f"`{kind}`" if not kind.startswith("sums of ") else f"sums of `{kind.removeprefix('sums of ')}`"]
        + [cell(by_damage.get(damage)) for damage in DAMAGES]
        for kind, by_damage in sorted(cells.items(), key=lambda item: (item[0].startswith("sums"), item[0]))
    )
    return table(["", *DAMAGES], rows)


def exceptions(results: Sequence[Result]) -> str:
    """The disagreements by their reasons."""
    rows = []
    for reason in REASONS:
        found = [result for result in results if not result.agreed and reason.explains(result)]
        if found:
            target = ", ".join(f"`{kind}`" for kind in sorted({kind_of(result.where) for result in found}))
            kinds = ", ".join(
                damage for damage in DAMAGES if any(damage == result.damage for result in found)
            )
            verdict = "an error" if found[0].errors else "no error"
            rows.append([len(found), target, kinds, found[0].outcome, verdict, reason.why])
    return table(["cases", "where", "damage", "Spark", "`verify`", "why"], rows)


PAGE_TEXT = """\
# Damaged checkpoints

<!-- written by `make damage`; do not edit -->

What `tidemill checkpoint verify` says of damaged checkpoints, against what Spark makes of them. Every file of the
{checkpoints} checkpoints below (of the state, those of the first partition) was damaged in each of these ways, and so
was every folder:

{damages}

Then `verify` judged the checkpoint, and Spark started the query on it with new input waiting. *Continues* means that
the start ended, and that the rows it added to a sink which knows batches as Delta does, the rows left in its state
and its watermark are those of a start on the undamaged checkpoint. *Differs* means that some of them are not.

{totals}

{by_checkpoint}

## Where the two disagree, and why

{exceptions}

## All of it

How many damages of each kind there were, and in brackets in how many the two disagree. `S` is a source, `O` an
operator, `P` a partition, `N` a batch, `V` a version.

{matrix}
"""


def totals(results: Sequence[Result]) -> str:
    """What Spark did and how often `verify` had said so, in a table."""
    rows = []
    for outcome in ("continues", "differs", "fails"):
        of_outcome = [result for result in results if result.outcome == outcome]
        errors = [result for result in of_outcome if result.errors]
        quick = sum(result.quick for result in errors)
        rows.append([outcome, len(of_outcome), len(errors), quick, len(of_outcome) - len(errors)])
    head = ["Spark", "damages", "`verify`: an error", "`--quick` too", "`verify`: no error"]
    return table(head, ([f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows))


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    checkpoints = Counter((result.spark, result.case) for result in results)
    wrong = Counter((result.spark, result.case) for result in results if not result.agreed)
    return PAGE_TEXT.format(
        checkpoints=len(checkpoints),
        damages=table(["damage", "what"], DAMAGES.items()),
        totals=totals(results),
        by_checkpoint=table(
            ["checkpoint", "Spark", "damages", "disagree"],
            ([name, spark, count, wrong[spark, name]] for (spark, name), count in checkpoints.items()),
        ),
        exceptions=exceptions(results),
        matrix=matrix(results),
    )


def main() -> None:
    """Writes the page."""
    results = read(RESULTS)
    PAGE.write_text(page(results))
    left = unexplained(results)
    for result in left:
        sys.stderr.write(f"unexplained: {result}\n")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
