"""Rows of the table: what streaming cannot do is refused by the plan, and what it can do is not."""

import pytest

from tests.plans.refused_cases import ALLOWED, REFUSED, with_flights
from tidemill.operations.edits.code_changes import code_changes

pytestmark = [pytest.mark.jvm, pytest.mark.campaign]
MODES = {"output-mode-unsuitable", "watermark-missing"}


@pytest.fixture(scope="module")
def flights(engine, tmp_path_factory):
    """A lake with the tables that the cases read."""
    return with_flights(tmp_path_factory.mktemp("flights"), engine)


def error_of(flights, code):
    [change] = code_changes([code.stream()], flights.target, flights.engine)
    return change.error


@pytest.mark.parametrize("case", [name for name, case in REFUSED.items() if case.error not in MODES])
def test_op_unsupported(flights, case):
    error = error_of(flights, REFUSED[case].code)
    assert error.code == REFUSED[case].error
    assert REFUSED[case].operation in error.what
    assert REFUSED[case].way in error.fix


@pytest.mark.parametrize("case", [name for name, case in REFUSED.items() if case.error in MODES])
def test_mode_matrix(flights, case):
    assert error_of(flights, REFUSED[case].code).code == REFUSED[case].error


@pytest.mark.parametrize("case", ALLOWED)
def test_mode_matrix_allowed(flights, case):
    assert error_of(flights, ALLOWED[case]) is None
