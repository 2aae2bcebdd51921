"""What a selection names, in which order, and what it answers when it names nothing."""

from itertools import permutations

import pytest

from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, Pipeline, Raw, Stream
from tidemill.definitions.selection import select, topological_order
from tidemill.definitions.source import StreamTable
from tidemill.text.names import StreamName


def transform(*names: str):
    scope: dict = {}
    exec(f"def function({', '.join(names)}): return {names[0]}", scope)  # noqa: S102 - argument names vary
    return scope["function"]


def declare(pipeline: Pipeline, name: str, **sources) -> Stream:
    return pipeline.stream(source=sources, sink=DeltaAppend(), name=name)(transform(*sources))


def shop() -> list[Stream]:
    """views -> clean -> totals <~static~ prices; web/visits reads shop/clean across pipelines."""
    shop, web = Pipeline("shop"), Pipeline("web")
    views = declare(shop, "views", events=Feed("views", Raw()))
    prices = declare(shop, "prices", events=Feed("prices", Raw()))
    clean = declare(shop, "clean", views=views)
    totals = declare(shop, "totals", clean=clean, prices=prices.static())
    visits = declare(web, "visits", clean=clean)
    return [views, prices, clean, totals, visits]


def names(streams) -> list[str]:
    return [str(stream.name) for stream in streams]


@pytest.mark.parametrize(
    ("expressions", "exclude", "expected"),
    [
        ([], [], ["shop/views", "shop/prices", "shop/clean", "shop/totals", "web/visits"]),
        (["shop"], [], ["shop/views", "shop/prices", "shop/clean", "shop/totals"]),
        (["shop/clean"], [], ["shop/clean"]),
        (["shop/clean+"], [], ["shop/clean", "shop/totals", "web/visits"]),
        (["+shop/totals"], [], ["shop/views", "shop/prices", "shop/clean", "shop/totals"]),
        (["+shop/clean+"], [], ["shop/views", "shop/clean", "shop/totals", "web/visits"]),
        (["shop/prices+"], [], ["shop/prices", "shop/totals"]),
        (["+web"], [], ["shop/views", "shop/clean", "web/visits"]),
        (["*/v*"], [], ["shop/views", "web/visits"]),
        (["web/visits", "shop/views"], [], ["shop/views", "web/visits"]),
        (["shop"], ["shop/clean+"], ["shop/views", "shop/prices"]),
        ([], ["web"], ["shop/views", "shop/prices", "shop/clean", "shop/totals"]),
    ],
)
def test_what_an_expression_names(expressions, exclude, expected):
    assert names(select(shop(), expressions, exclude)) == expected


@pytest.mark.parametrize(
    ("expression", "code", "named"),
    [
        ("shp", "selection-without-match", "Did you mean shop?"),
        ("shop/clea", "selection-without-match", "Did you mean shop/clean"),
        ("visits", "selection-without-match", "Did you mean web/visits?"),
        ("zzz", "selection-without-match", "Known pipelines: shop, web."),
        ("shop/../clean", "selection-invalid", "shop/../clean"),
        ("", "selection-invalid", "''"),
        ("SHOP", "selection-invalid", "SHOP"),
    ],
)
def test_a_selection_that_names_nothing(expression, code, named):
    for arguments in ([expression], []), (["shop"], [expression]):
        with raises(code, named):
            select(shop(), *arguments)


def test_nothing_left_is_an_error():
    with raises("selection-empty", "'web' without 'web/visits'"):
        select(shop(), ["web"], ["web/visits"])


def test_no_streams_at_all_is_no_error():
    assert select([], []) == ()


def test_every_stream_comes_after_what_it_reads_whatever_the_order_of_declaration():
    for streams in permutations(shop()):
        earlier: set[StreamName] = set()
        for stream in topological_order(streams):
            assert earlier.issuperset(stream.upstreams)
            earlier.add(stream.name)


def test_a_cycle_is_named():
    pipeline = Pipeline("ring")
    reading = StreamTable(stream=StreamName("ring", "b"), mode="append", is_merge=False)
    a = declare(pipeline, "a", b=reading)
    b = declare(pipeline, "b", a=a)

    with raises("streams-in-a-cycle", "ring/a <- ring/b", "ring/b <- ring/a"):
        topological_order([a, b])
