"""Owners and tags are refused when they are declared exactly where Dagster would refuse them at load."""

import pytest
from dagster import AssetKey, AssetSpec, DagsterInvalidDefinitionError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.raising import raises
from tidemill.errors import DefinitionError
from tidemill.text.names import valid_owner, valid_tag

OWNERS = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"(team:)?[\w.@ +|-]{0,12}"),
    st.from_regex(r"[a-z.%+-]{0,3}@[a-z.-]{0,5}\.[A-Z|a-z]{0,8}", fullmatch=True),
)
PARTS = st.from_regex(r"[\w./ -]{0,8}")
LONG = st.sampled_from(["k" * 63, "k" * 64, f"{'n' * 63}/k", f"{'n' * 64}/k"])
KEYS = st.one_of(st.text(max_size=8), PARTS, LONG, PARTS.map("dagster/kind/{}".format))


def accepts(function, *values: object) -> bool:
    """Whether one of our functions accepts these values."""
    try:
        function(*values)
    except DefinitionError:
        return False
    return True


def loads(**attributes: object) -> bool:
    """Whether Dagster makes an asset with these attributes."""
    try:
        AssetSpec(AssetKey("a"), **attributes)
    except DagsterInvalidDefinitionError:
        return False
    return True


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(OWNERS)
@example("team:")
@example("team:x")
@example("ann@example.com")
@example("ann@example.com\n")
@example(".ann@example.com")
def test_owners_follow_dagsters_rule(owner):
    assert accepts(valid_owner, owner) == loads(owners=[owner])


@settings(suppress_health_check=[HealthCheck.too_slow])  # tables of Unicode are built at the first draw
@given(KEYS, st.one_of(st.text(max_size=8), PARTS, LONG))
@example("domain", "")
@example("a/b", "ads")
@example("a/b/c", "ads")
@example("dagster/kind/x", "")
def test_tags_follow_dagsters_rule(key, value):
    # Dagster's pattern ends with `$`, so it also lets a newline at the end pass; ours does not.
    dagster = loads(tags={key: value}) and not (key.endswith("\n") or value.endswith("\n"))
    assert accepts(valid_tag, key, value) == dagster


@pytest.mark.parametrize("owner", [None, 1, ["team:x"]])
def test_an_owner_that_is_no_string_is_refused_by_name(owner):
    with raises("argument-invalid"):
        valid_owner(owner)


@pytest.mark.parametrize(("key", "value"), [(1, "x"), ("x", 1), ("x", None)])
def test_a_tag_that_is_no_string_is_refused(key, value):
    with raises("argument-invalid"):
        valid_tag(key, value)


def test_the_values_come_back():
    assert valid_owner("team:ads") == "team:ads"
    assert valid_tag("domain", "ads") == ("domain", "ads")
