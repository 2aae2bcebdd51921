"""Every error has a code of its own, and docs/errors.md explains every code."""

import ast
import re
from pathlib import Path

from tests.support.raising import raises
from tidemill import errors
from tidemill.checkpoint.format.errors import FileAbsentError
from tidemill.engines.dev.broker import NotStartedError
from tidemill.errors import CanceledError, TerminalError, TidemillError
from tidemill.orchestration.alerts.alert import DeliveryError
from tidemill.run.spark.refusals import REFUSALS

ROOT = Path(__file__).parents[1]
MODULES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("tidemill", "pipelines")
    for path in sorted(ROOT.glob(f"{folder}/**/*.py"))
}
NODES = [(path, node) for path, module in MODULES.items() for node in ast.walk(module)]
# Classes of more than one kind of error: each construction names its kind.
GENERAL = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TidemillError) and kind.code == TidemillError.code
}


def codes_of(page: str) -> list[str]:
    """Return the codes in the first column of the tables of a page."""
    rows = re.findall(r"^\| (`[a-z].*?`) \|", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return [code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row)]


def codes_in(node: ast.AST) -> list[str]:
    strings = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return [part for part in strings if isinstance(part, str) and re.fullmatch(r"[a-z][a-z0-9-]+", part)]


def used_codes() -> dict[str, str]:
    """Return each code that a class has or a call gives, with its location."""
    used = {}
    for path, node in NODES:
        match node:
            case ast.keyword(arg="code", value=value):
                used |= dict.fromkeys(codes_in(value), f"{path}:{value.lineno}")
            case ast.ClassDef(body=body):
                for part in body:
                    match part:
                        case ast.Assign(targets=[ast.Name(id="code")], value=value):
                            used |= dict.fromkeys(codes_in(value), f"{path}:{value.lineno}")
    return used


def test_every_error_names_its_code():
    unnamed = [
        f"{path}:{node.lineno}"
        for path, node in NODES
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in GENERAL
        and not any(keyword.arg == "code" for keyword in node.keywords)
    ]
    assert "TerminalError" in GENERAL
    assert "LeaseHeldError" not in GENERAL
    assert not unnamed


def test_every_code_is_documented_once_and_no_other():
    documented, used = codes_of("docs/errors.md"), used_codes()
    assert len(set(documented)) == len(documented)
    assert set(documented) <= used.keys()
    known = {*documented, *codes_of("docs/checkpoint.md"), TidemillError.code}
    assert {code: location for code, location in used.items() if code not in known} == {}


def test_every_code_is_named_by_a_test():
    """A test that provokes an error names its code, as a string of its own, and not a part of the message."""
    tests = (path for path in ROOT.glob("tests/**/*.py") if path != Path(__file__))
    named = {code for path in tests for code in codes_in(ast.parse(path.read_text(encoding="utf-8")))}
    assert [code for code in codes_of("docs/errors.md") if code not in named] == []


def test_the_page_marks_the_codes_of_errors_that_are_worth_a_retry():
    transient = {"TransientError", "DeliveryError", "NotStartedError"}
    codes = {errors_of.code for errors_of in (DeliveryError, NotStartedError)}
    for _, node in NODES:
        if isinstance(node, ast.Call) and transient & {ast.unparse(part) for part in (node.func, *node.args)}:
            codes.update(*(codes_in(keyword.value) for keyword in node.keywords if keyword.arg == "code"))
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(.*)` \| retry: ", page, re.MULTILINE)) == codes


def test_the_page_has_the_way_around_each_refusal_of_spark():
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    table = page.partition("| operation | reason | way around | code |\n|---|---|---|---|\n")[2]
    rows = [
        (re.sub(r"{(\w+)}", r"*\1*", known.operation), known.reason, known.fix, f"`{known.code}`")
        for known in REFUSALS
    ]
    assert table.partition("\n\n")[0].splitlines() == [f"| {' | '.join(row)} |" for row in rows]


def test_a_code_belongs_to_the_class_or_to_the_error():
    assert TidemillError("it failed.").code == "error"
    assert CanceledError().code == "canceled"
    assert TerminalError("it failed.", code="out-of-luck").of("shop/orders").code == "out-of-luck"
    assert FileAbsentError("commits/3").code == "missing-file"


def test_raises_reads_the_code_and_the_values_of_an_error():
    with raises("out-of-luck", "shop/orders", "do it again") as raised:
        raise TerminalError("it failed.", code="out-of-luck", stream="shop/orders", fix="do it again.")
    assert isinstance(raised.value, TerminalError)
