"""Damaged checkpoints: what `verify` says of each is what Spark makes of it, but for reasons that are written down."""

import shutil
from pathlib import Path

import pytest

from tests.streaming.checkpoint import campaign, environments, handmade, report
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


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", ["stateless-named", "windows-hdfs", "windows-changelog"])
def test_verify_says_what_spark_does(tmp_path: Path, case: str) -> None:
    python, jars = environments.spark(environments.OURS)
    with campaign.Spark(python, jars) as spark:
        results = list(campaign.results_of(spark, environments.OURS, case, tmp_path))
    assert report.unexplained(results) == []
    assert any(result.errors for result in results)
