"""The pages are true: links resolve, code runs, flags and JSON keys are those of the command."""

import ast
import inspect
import json
import re
import runpy
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
import typer

import tidemill as streaming
from tests.checkpoint import handmade
from tests.cli.test_quarantine_command import write_quarantine
from tests.orchestration.shop import ORDERS, Shop
from tests.servers.warm import attached, serving
from tidemill import Pipeline, Stream, cli, testing
from tidemill.records.batch import BatchRecord
from tidemill.records.manifest import StatefulOperator
from tidemill.records.operation import new_operation
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.results import StreamResult
from tidemill.target.server_home import ServerHome
from tidemill.testing import Scratch

ROOT = Path(__file__).parents[1]
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}
COMMAND = PAGES["docs/command.md"].read_text(encoding="utf-8")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
# The keys below these keys are chosen by Spark, by the user, or are names of feeds, rules and observations.
FREE = {"offset", "start", "conf", "feeds", "tags", "numbers", "rules", "observed"}


def prose(page: str) -> str:
    """Return a page without its blocks of code, in which brackets are no links and `#` is no heading."""
    return re.sub(r"^```.*?^```", "", PAGES[page].read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub derives them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_resolves(page):
    for link in LINK.finditer(prose(page)):
        name, _, anchor = link["target"].partition("#")
        if "://" in name:
            continue
        path = (PAGES[page].parent / name).resolve() if name else PAGES[page]
        assert path.is_relative_to(ROOT), f"{link[0]} leaves the repository"
        assert path.exists(), f"{link[0]} does not exist"
        if anchor:
            assert anchor in anchors(path.relative_to(ROOT).as_posix()), f"{link[0]}: no such heading"


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page):
    for link in LINK.finditer(prose(page)):
        if link["target"].endswith(".py") and link["text"].startswith("`test_"):
            path = PAGES[page].parent / link["target"]
            assert f"\ndef {link['text'].strip('`')}(" in path.read_text(encoding="utf-8"), link[0]


def test_the_readme_links_to_every_page():
    linked = {link["target"] for link in LINK.finditer(prose("README.md"))}
    assert set(PAGES) - {"README.md"} <= linked


@pytest.mark.parametrize("page", PAGES)
def test_no_page_knows_this_machine(page):
    assert str(ROOT) not in PAGES[page].read_text(encoding="utf-8")
    assert str(Path.home()) + "/" not in PAGES[page].read_text(encoding="utf-8")


def code_of(page: str) -> str:
    """Return the Python blocks of a page as one module; each line keeps its number in the page."""
    in_block = False
    lines = []
    for line in PAGES[page].read_text(encoding="utf-8").splitlines():
        is_fence = line.startswith("```")
        lines.append(line if in_block and not is_fence else "")
        in_block = line == "```python" or (in_block and not is_fence)
    return "\n".join(lines)


def names_of(page: str) -> dict[str, object]:
    """Run the Python blocks of a page, one after the other, and return what they define."""
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(code_of(page), page, "exec", dont_inherit=True), names)  # noqa: S102
    return names


WITH_CODE = [page for page in PAGES if code_of(page).strip()]
TESTS = [
    pytest.param(page, node.name, marks=[pytest.mark.kafka] if "broker" in ast.unparse(node.args) else [])
    for page in WITH_CODE
    for node in ast.parse(code_of(page)).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_runs_and_needs_no_jvm(page, tmp_path, monkeypatch):
    from pyspark import SparkContext

    handmade.stateful(tmp_path / "lake" / "checkpoints" / "ads" / "impressions" / "1")
    monkeypatch.chdir(tmp_path)

    monkeypatch.setenv("TIDEMILL_CONFIG", str(ROOT / "tidemill.toml"))
    before = SparkContext._gateway
    names_of(page)
    assert SparkContext._gateway is before


@pytest.mark.jvm
@pytest.mark.parametrize(("page", "test"), TESTS)
def test_the_tests_of_a_page_pass(page, test, request):
    run = names_of(page)[test]
    run(*map(request.getfixturevalue, inspect.signature(run).parameters))


def test_the_pages_with_tests_are_found():
    assert {param.values[0] for param in TESTS} == {"docs/testing.md"}


def test_the_tutorial_shows_the_code_of_the_pipeline():
    def without_space(text: str) -> str:
        return re.sub(r"\s", "", text)

    lines = code_of("docs/tutorial.md").splitlines()
    code = without_space(
        "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("pipelines/ads/*.py"))
    )
    excerpts = [
        "\n".join(lines[min([node.lineno, *(part.lineno for part in decorators)]) - 1 : node.end_lineno])
        for node in ast.parse("\n".join(lines)).body
        for decorators in [getattr(node, "decorator_list", [])]
        if not isinstance(node, ast.ImportFrom)
    ]
    assert len(excerpts) == 7
    assert not [excerpt for excerpt in excerpts if without_space(excerpt) not in code]


def test_the_readme_defines_a_pipeline_in_about_thirty_lines():
    (shop,) = [value for value in names_of("README.md").values() if isinstance(value, Pipeline)]
    assert [stream.name.stream for stream in shop] == ["orders", "unique_orders", "customers"]
    assert all(isinstance(stream, Stream) and stream.description for stream in shop)
    assert sum(bool(line.strip()) for line in code_of("README.md").splitlines()) <= 35


@pytest.mark.slow
def test_the_reference_is_up_to_date_and_has_every_public_name():
    page = runpy.run_path(str(ROOT / ".ci" / "reference.py"))["page"]()
    assert PAGES["docs/reference.md"].read_text(encoding="utf-8") == page, "run `make reference`"
    for package in (streaming, testing):
        names = {name for name in package.__all__ if not inspect.ismodule(getattr(package, name))}
        assert names <= set(re.findall(r"^### `(\w+)`$", page, re.MULTILINE))


def test_a_banned_word_is_reported_with_its_line_and_what_to_write(tmp_path):
    faults = runpy.run_path(str(ROOT / ".ci" / "words.py"))["faults"]
    page = tmp_path / "page.md"
    banned = "dednem"[::-1]
    page.write_text(f"A table is created once per run.\n\nThe table is {banned}.\n")
    assert faults(page) == [f"{page}:3: {banned!r}: write fix"]


def commands(group, prefix=("tidemill",)):
    """Yield every command and group by its full name."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield " ".join((*prefix, name)), command
        if hasattr(command, "list_commands"):
            yield from commands(command, (*prefix, name))


def sections() -> dict[str, str]:
    """Return the text of each command's section, by the command's full name."""
    parts = re.split(r"^#{2,3} (.+)$", COMMAND, flags=re.MULTILINE)[1:]
    named = dict(zip(parts[::2], parts[1::2], strict=True))
    return {title.strip("`"): text for title, text in named.items() if title.startswith("`tidemill ")}


def flags(command) -> set[str]:
    """Return the flags of a command, without those that all commands have."""
    common = {"-h", "--help", "--install-completion", "--show-completion"}
    return {flag for option in command.params for flag in option.opts if flag.startswith("-")} - common


def test_every_command_has_a_section_with_its_flags_and_no_others():
    known = dict(commands(typer.main.get_command(cli.app)))
    assert set(sections()) == set(known)
    for name, text in sections().items():
        listed = re.search(r"^Flags: (.+)\.$", text, re.MULTILINE)
        assert set(re.findall(r"`([^`]+)`", listed[1]) if listed else []) == flags(known[name]), name


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_flags_that_exist(page):
    known = dict(commands(typer.main.get_command(cli.app)))
    text = PAGES[page].read_text(encoding="utf-8")
    for line in re.findall(r"tidemill [a-z][^\n`#]*", text):
        name = next((full for full in sorted(known, reverse=True) if f"{line} ".startswith(f"{full} ")), None)
        if name is not None:
            used = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", line)) - {"-h", "--help"}
            assert used <= flags(known[name]), line


def shape(value: object) -> object:
    """Return the keys of a JSON value without its values; a list has the shape of its first member."""
    if isinstance(value, dict):
        return {key: None if key in FREE else shape(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value[:1] if isinstance(part, dict)]
    return None


def printed(monkeypatch, capsys, *arguments: object) -> object:
    """Return the object that a command prints with `--json`."""
    monkeypatch.setattr("sys.argv", ["tidemill", *map(str, arguments), "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    return json.loads(capsys.readouterr().out)


def _named(checkpoint):
    """Name the source of a checkpoint, as in the checkpoints of streams."""
    for batch in range(len(list((checkpoint / "commits").glob("[0-9]*")))):
        handmade.entry(checkpoint, batch, key="events")
        line = f'events:{{"logOffset":{batch}}}'
        handmade.offsets(checkpoint, batch, line, watermark=10 * batch, named=True)
    return checkpoint


class InterruptedBroker(nullcontext):
    """A broker without a JVM, interrupted as soon as it runs."""

    bootstrap = "127.0.0.1:9092"

    def __enter__(self):
        return self

    def wait(self):
        raise KeyboardInterrupt


@pytest.fixture
def _warm_server(tmp_path, monkeypatch):
    """A warm server without Spark for the target of `arguments`, to which this process is attached."""
    monkeypatch.setenv("TIDEMILL_CACHE", str(tmp_path / "cache"))
    config = tmp_path / "shop" / "tidemill.toml"
    home = ServerHome.of(target="dev", config=config, lake=str(tmp_path / "shop" / "lake"))
    with serving(home):
        _, connection = attached(home)
        with connection:
            yield


@pytest.fixture
def arguments(tmp_path, monkeypatch, request):
    """Return the arguments of each command whose JSON is on the page, on input that needs no JVM."""
    if request.getfixturevalue("example").startswith("engine"):
        request.getfixturevalue("_warm_server")
    (tmp_path / "shop").mkdir()
    shop = Shop.make(tmp_path / "shop", monkeypatch)
    shop.has_run("a.json")
    write_quarantine(shop, ("{", ["unparsable"]))
    copies = Path(shop.target.lake.records(ORDERS).uri()) / "repairs"
    copies.mkdir()
    (copies / "1-offsets-1").write_text("v2")
    span = {"column": "day", "type": "date", "begin": "2026-01-02", "end": "2026-01-03"}
    ended = new_operation("backfill", {}, command="tidemill backfill", decided=span)
    records = StreamRecords(shop.target.lake, ORDERS)
    records.write_operation(ended)
    records.end_operation(ended)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "orders").mkdir(parents=True)
    monkeypatch.setattr("tidemill.engines.java.find_java", lambda: None)
    monkeypatch.setattr("tidemill.engines.dev.broker.Broker", InterruptedBroker)
    deduplicated = SimpleNamespace(
        operators=(StatefulOperator(kind="deduplicate"),),
        fingerprint="",
        output=None,
        warnings=(),
        schemas={},
    )
    monkeypatch.setattr("tidemill.operations.edits.code_changes.build_now", lambda *_: deduplicated)
    a, b = (_named(handmade.stateful(tmp_path / name, batches)) for name, batches in (("a", 4), ("b", 5)))
    damaged = _named(handmade.stateful(tmp_path / "damaged"))
    handmade.remove(damaged / "state" / "0" / "1" / "4.delta")
    return {
        "run": ["run", "shop/orders"],
        "plan": ["plan", "shop/orders"],
        "status": ["status", "shop/orders"],
        "check": ["check", "shop/orders"],
        "list": ["list", "shop/orders"],
        "operations": ["operations"],
        "coverage": ["backfill", "status"],
        "rebuild": ["rebuild", "shop/orders", "--dry-run"],
        "quarantine": ["quarantine", "show"],
        "replay": ["quarantine", "replay", "--lake", tmp_path / "empty"],
        "maintain": ["maintain", "--dry-run"],
        "register": ["register", "--dry-run"],
        "prune": ["prune", "--older-than", "0s", "--dry-run"],
        "rebind": ["rebind", "shop/orders", "events", "--landing", elsewhere, "--dry-run"],
        "inspect": ["checkpoint", "inspect", a],
        "verify": ["checkpoint", "verify", damaged],
        "history": ["checkpoint", "history", b, "--last", 1],
        "diff": ["checkpoint", "diff", a, b],
        "debug": ["debug"],
        "engine_status": ["engine", "status"],
        "engine_stop": ["engine", "stop", "--lake", tmp_path / "empty"],
        "engine_logs": ["engine", "logs"],
        "jars": ["jars"],
        "broker": ["demo", "broker"],
        "generate": ["demo", "generate", "--out", tmp_path / "landing", "--events", 10, "--files", 1],
    }


EXAMPLES = dict(re.findall(r"<!-- shape: (\w+) -->\n```json\n(.*?)\n```", COMMAND, re.DOTALL))


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_json_of_a_page_has_the_keys_that_the_command_prints(example, arguments, monkeypatch, capsys):
    assert shape(json.loads(EXAMPLES[example])) == shape(printed(monkeypatch, capsys, *arguments[example]))


def test_every_command_with_json_shows_it():
    with_json = {
        name for name, command in commands(typer.main.get_command(cli.app)) if "--json" in flags(command)
    }
    shown = {name for name, text in sections().items() if "<!-- shape: " in text}
    same = {"jars fetch", "engine start", "accept", "adopt", "rename-source", "rewind", "reset", "backfill"}
    assert with_json - shown == {f"tidemill {name}" for name in same}, (
        "they print the object of another command"
    )


def test_the_parts_of_an_error_are_named():
    for key in ("code", "type", "transient", "what", "lost", "fix", "class"):
        assert f"`{key}`" in sections()["tidemill run"]


def test_concepts_names_every_field_of_a_ledger_line():
    text = prose("docs/concepts.md").split("**A line of the ledger**")[1]
    assert {"pipeline", "stream", *(field.name for field in fields(BatchRecord))} <= set(
        re.findall(r"`(\w+)`", text)
    )


def test_testing_names_only_what_the_kit_has():
    text = prose("docs/testing.md")
    table = text.split("| call | effect |")[1].split("\n\n")[0]
    named = re.findall(r"^\| `(\w+)\(", table, re.MULTILINE)
    assert named
    assert all(callable(getattr(Scratch, name)) for name in named)
    result = re.search(r"Each result is a `StreamResult`: (.+) and more", text)
    attributes = {field.name for field in fields(StreamResult)} | set(vars(StreamResult))
    assert result
    assert set(re.findall(r"`(\w+)", result[1])) <= attributes


def test_the_picture_is_well_formed():
    root = ET.parse(ROOT / "docs/images/picture.svg").getroot()  # noqa: S314 - our own file
    assert root.tag.endswith("svg")
