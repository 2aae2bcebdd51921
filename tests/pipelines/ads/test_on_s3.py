"""The pipeline `ads` with its lake and its files on S3: `make store-test`."""

import pytest

from pipelines.ads import ads
from pipelines.ads.generate import generate
from tests.pipelines.ads import oracle
from tests.pipelines.ads.tables import ALL, assert_equal, tables
from tests.support import lakes

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not lakes.ON_S3, reason="needs TEST_LAKE=s3"),
]


def test_three_increments_from_a_prefix_are_the_oracles(scratch, tmp_path):
    landing = scratch.target.default_binding
    prepared = tmp_path / "prepared"
    start, arrived = 0, set()
    for _ in range(3):
        start = generate(out=prepared, events=5_000, seed=3, files=3, start=start, late=0).next_start
        for file in sorted(set(prepared.rglob("*.json")) - arrived):
            landing.create(str(file.relative_to(prepared)), file.read_bytes())
            arrived.add(file)
        results = scratch.run_all(ads[name] for name in ALL)
        assert not [str(result.error) for result in results if result.error]

    assert {result.outcome for result in scratch.run_all(ads[name] for name in ALL)} == {"idle"}
    assert_equal(tables(scratch), oracle.expected(prepared))
