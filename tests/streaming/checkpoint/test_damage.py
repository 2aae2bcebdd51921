"""The damages of the campaign touch every file in every way, and its page hides no disagreement."""

import shutil
from pathlib import Path

from tests.streaming.checkpoint import handmade, report
from tests.streaming.checkpoint.campaign import Result
from tests.streaming.checkpoint.damage import damages


def contents(checkpoint: Path) -> dict[str, bytes | None]:
    return {
        str(place.relative_to(checkpoint)): place.read_bytes() if place.is_file() else None
        for place in checkpoint.rglob("*")
    }


def test_every_damage_is_one(tmp_path: Path) -> None:
    whole = handmade.stateful(tmp_path / "whole")
    before = contents(whole)
    touched = set()
    for number, damage in enumerate(damages(whole)):
        damage.apply(shutil.copytree(whole, tmp_path / str(number)))
        assert contents(tmp_path / str(number)) != before, damage
        touched.add((damage.where, damage.kind))
    assert {where for where, _ in touched} == set(before)
    assert {kind for _, kind in touched} == set(report.DAMAGES)


def result(where: str, damage: str, outcome: str, *errors: str) -> Result:
    return Result("4.2", "case", where, damage, outcome, "", list(errors), [], quick=bool(errors))


def test_a_disagreement_needs_a_reason() -> None:
    agreed = [
        result("offsets/3", "empty", "fails", "empty-file"),
        result("offsets/1", "delete", "continues"),
    ]
    reasoned = result("sources/0/3", "flip", "differs")
    elsewhere = result("metadata", "delete with sums", "continues", "missing-metadata")  # Spark 3.5 alone
    missed, false = result("commits/3", "flip", "fails"), result("commits/2", "delete", "continues", "odd")
    results = [*agreed, reasoned, missed, false, elsewhere]
    assert report.unexplained(results) == [missed, false, elsewhere]
    page = report.page(results)
    assert "| case | 4.2 | 6 | 4 |" in page
    assert "| fails | 2 | 1 | 1 | 1 |" in page
    assert "| 1 | `sources/S/N` | flip | differs | no error |" in page
