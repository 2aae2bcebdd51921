"""The damages of the campaign change every file in every way, and its page hides no disagreement."""

import shutil
from pathlib import Path

from bench.damage import report
from bench.damage.campaign import Result
from bench.damage.damages import damages
from tests.checkpoint import handmade


def contents(checkpoint: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(checkpoint)): path.read_bytes() if path.is_file() else None
        for path in checkpoint.rglob("*")
    }


def test_every_damage_changes_the_checkpoint(tmp_path: Path) -> None:
    sound = handmade.stateful(tmp_path / "sound")
    original = contents(sound)
    changed = set()
    for number, damage in enumerate(damages(sound)):
        damage.apply(shutil.copytree(sound, tmp_path / str(number)))
        assert contents(tmp_path / str(number)) != original, damage
        changed.add((damage.where, damage.kind))
    assert {where for where, _ in changed} == set(original)
    assert {kind for _, kind in changed} == set(report.DAMAGES)


def result(where: str, damage: str, outcome: str, *errors: str) -> Result:
    return Result("4.2", "case", where, damage, outcome, "", list(errors), [], quick=bool(errors))


def test_a_disagreement_needs_a_reason() -> None:
    agreed = [
        result("offsets/3", "empty", "fails", "empty-file"),
        result("offsets/1", "delete", "continues"),
    ]
    explained = result("sources/0/3", "flip", "differs")
    elsewhere = result("metadata", "delete with checksum", "continues", "missing-metadata")  # only Spark 3.5
    missed, false = result("commits/3", "flip", "fails"), result("commits/2", "delete", "continues", "odd")
    results = [*agreed, explained, missed, false, elsewhere]
    assert report.unexplained(results) == [missed, false, elsewhere]
    page = report.page(results)
    assert "| case | 4.2 | 6 | 4 |" in page
    assert "| fails | 2 | 1 | 1 | 1 |" in page
    assert "| 1 | `sources/S/N` | flip | differs | no error |" in page
