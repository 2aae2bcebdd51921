"""Rows of the table: what streaming cannot do is refused by the plan, and what it can do is not."""

import pytest

from tests.conformance.gallery import ERRORS
from tests.plans.code_cases import FLIGHT
from tests.plans.refused_cases import ALLOWED, REFUSED, with_flights
from tidemill import DeltaAppend, DeltaMerge, DeltaOverwrite, Feed, Json, Pipeline, QueryOptions
from tidemill import functions as F
from tidemill.operations.edits.code_changes import code_changes

pytestmark = [pytest.mark.jvm, pytest.mark.campaign]
MODES = {"output-mode-unsuitable", "watermark-missing"}


@pytest.fixture(scope="module")
def flights(engine, tmp_path_factory):
    """A lake with the tables that the cases read."""
    return with_flights(tmp_path_factory.mktemp("flights"), engine)


def error_of(flights, stream):
    [change] = code_changes([stream], flights.target, flights.engine)
    return change.error


def air_with_flights():
    """A pipeline, and its stream with the table that the cases read."""
    air = Pipeline("air")
    feed = Feed("flights", Json(FLIGHT))
    return air, air.stream(source=feed, sink=DeltaAppend(), name="flights_table")(lambda events: events)


def test_op_unsupported_in_one_line(flights):
    air, events = air_with_flights()

    @air.stream(
        source={"flights": events},
        sink=DeltaMerge(keys=["carrier"]),
        query=QueryOptions(output_mode="update"),
    )
    def op_unsupported(flights):
        """Refused by `tidemill plan` and by the run."""
        return flights.groupBy("carrier").agg(F.countDistinct("origin").alias("origins"))

    @air.stream(
        source={"flights": events},
        sink=DeltaMerge(keys=["carrier"]),
        query=QueryOptions(output_mode="update"),
    )
    def op_unsupported_fixed(flights):
        """What the error names."""
        return flights.groupBy("carrier").agg(F.approx_count_distinct("origin").alias("origins"))

    assert str(error_of(flights, op_unsupported)) == ERRORS["op_unsupported"]
    assert error_of(flights, op_unsupported_fixed) is None


def test_mode_matrix_in_one_line(flights):
    air, events = air_with_flights()

    @air.stream(source={"flights": events}, sink=DeltaAppend())
    def mode_matrix(flights):
        """Refused in append mode."""
        return flights.groupBy("carrier").count()

    @air.stream(
        source={"flights": events},
        sink=DeltaMerge(keys=["carrier"]),
        query=QueryOptions(output_mode="update"),
    )
    def mode_matrix_update(flights):
        """Allowed in update mode."""
        return flights.groupBy("carrier").count()

    @air.stream(source={"flights": events}, sink=DeltaOverwrite(), query=QueryOptions(output_mode="complete"))
    def mode_matrix_complete(flights):
        """Allowed in complete mode, where each batch writes the whole table."""
        return flights.groupBy("carrier").count()

    assert str(error_of(flights, mode_matrix)) == ERRORS["mode_matrix"]
    assert error_of(flights, mode_matrix_update) is None
    assert error_of(flights, mode_matrix_complete) is None


@pytest.mark.parametrize("case", [name for name, case in REFUSED.items() if case.error not in MODES])
def test_op_unsupported(flights, case):
    error = error_of(flights, REFUSED[case].code.stream())
    assert error.code == REFUSED[case].error
    assert REFUSED[case].operation in error.what
    assert REFUSED[case].way in error.fix


@pytest.mark.parametrize("case", [name for name, case in REFUSED.items() if case.error in MODES])
def test_mode_matrix(flights, case):
    assert error_of(flights, REFUSED[case].code.stream()).code == REFUSED[case].error


@pytest.mark.parametrize("case", ALLOWED)
def test_mode_matrix_allowed(flights, case):
    assert error_of(flights, ALLOWED[case].stream()) is None
