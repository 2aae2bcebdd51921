"""The pages say what is so: links lead somewhere, code runs, flags and JSON keys are those of the command."""

import json
import re
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import typer

from orchestration import cli
from pipelines.streaming import Pipeline, Stream
from pipelines.streaming.records import BatchRecord
from pipelines.streaming.run.results import StreamResult
from pipelines.streaming.testing import Scratch
from tests.orchestration.shop import Shop
from tests.streaming.checkpoint import handmade

ROOT = Path(__file__).parents[1]
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}
COMMAND = PAGES["docs/command.md"].read_text(encoding="utf-8")
EXECUTED = "<!-- executed by tests/test_docs.py -->\n```python\n"
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
# Under these keys stands what Spark, a feed's name or the user chose.
FREE = {"offset", "start", "conf", "feeds", "tags"}


def prose(page: str) -> str:
    """A page without its blocks of code, in which brackets are no links and `#` is no heading."""
    return re.sub(r"^```.*?^```", "", PAGES[page].read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    for link in LINK.finditer(prose(page)):
        place, _, anchor = link["target"].partition("#")
        if "://" in place:
            continue
        path = (PAGES[page].parent / place).resolve() if place else PAGES[page]
        assert path.is_relative_to(ROOT), f"{link[0]} leads out of the repository"
        assert path.exists(), f"{link[0]} leads nowhere"
        if anchor:
            assert anchor in anchors(path.relative_to(ROOT).as_posix()), f"{link[0]}: no such heading"


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page):
    for link in LINK.finditer(prose(page)):
        if link["target"].endswith(".py") and link["text"].startswith("`test_"):
            path = PAGES[page].parent / link["target"]
            assert f"\ndef {link['text'].strip('`')}(" in path.read_text(encoding="utf-8"), link[0]


def test_the_readme_leads_to_every_page():
    linked = {link["target"] for link in LINK.finditer(prose("README.md"))}
    assert set(PAGES) - {"README.md"} <= linked


@pytest.mark.parametrize("page", PAGES)
def test_no_page_knows_this_machine(page):
    assert str(ROOT) not in PAGES[page].read_text(encoding="utf-8")
    assert str(Path.home()) + "/" not in PAGES[page].read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    """The code of a page that is marked as executed."""
    return [rest.split("\n```")[0] for rest in PAGES[page].read_text(encoding="utf-8").split(EXECUTED)[1:]]


@pytest.mark.parametrize(
    ("page", "number"), [(page, number) for page in PAGES for number in range(len(blocks(page)))]
)
def test_the_code_of_a_page_runs_and_starts_no_jvm(page, number):
    from pyspark import SparkContext

    before = SparkContext._gateway
    exec(compile(blocks(page)[number], f"{page}[{number}]", "exec"), {"__name__": "page"})  # noqa: S102
    assert SparkContext._gateway is before


def test_the_readme_defines_a_pipeline_in_about_thirty_lines():
    (code,) = blocks("README.md")
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102
    (shop,) = [value for value in names.values() if isinstance(value, Pipeline)]
    assert [stream.name.stream for stream in shop] == ["orders", "unique_orders", "customers"]
    assert all(isinstance(stream, Stream) and stream.description for stream in shop)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 35


def commands(group, prefix=("tidemill",)):
    """Every command and group by its full name."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield " ".join((*prefix, name)), command
        if hasattr(command, "list_commands"):
            yield from commands(command, (*prefix, name))


def sections() -> dict[str, str]:
    """The text of each command's section, by the command's full name."""
    parts = re.split(r"^#{2,3} (.+)$", COMMAND, flags=re.MULTILINE)[1:]
    named = dict(zip(parts[::2], parts[1::2], strict=True))
    return {title.strip("`"): text for title, text in named.items() if title.startswith("`tidemill ")}


def flags(command) -> set[str]:
    """The flags that a command has of its own."""
    of_all = {"-h", "--help", "--install-completion", "--show-completion"}
    return {flag for option in command.params for flag in option.opts if flag.startswith("-")} - of_all


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
        name = next((each for each in sorted(known, reverse=True) if f"{line} ".startswith(f"{each} ")), None)
        if name is not None:
            used = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", line)) - {"-h", "--help"}
            assert used <= flags(known[name]), line


def shape(value: object) -> object:
    """The keys of a JSON value, whatever its values are; a list has the shape of its first member."""
    if isinstance(value, dict):
        return {key: None if key in FREE else shape(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value[:1] if isinstance(part, dict)]
    return None


def printed(monkeypatch, capsys, *arguments: object) -> object:
    """What a command prints with `--json`."""
    monkeypatch.setattr("sys.argv", ["tidemill", *map(str, arguments), "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    return json.loads(capsys.readouterr().out)


def _named(checkpoint):
    """A checkpoint whose source has a name, as in those of our streams."""
    for batch in range(len(list((checkpoint / "commits").glob("[0-9]*")))):
        handmade.entry(checkpoint, batch, key="events")
        line = f'events:{{"logOffset":{batch}}}'
        handmade.offsets(checkpoint, batch, line, watermark=10 * batch, named=True)
    return checkpoint


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """A call of each command whose JSON is on the page, on things that need no JVM."""
    (tmp_path / "shop").mkdir()
    shop = Shop.make(tmp_path / "shop", monkeypatch)
    shop.has_run("a.json")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "orders").mkdir(parents=True)
    monkeypatch.setattr("resources.engine.java.find_java", lambda: None)
    a, b = (_named(handmade.stateful(tmp_path / name, batches)) for name, batches in (("a", 4), ("b", 5)))
    damaged = _named(handmade.stateful(tmp_path / "damaged"))
    handmade.remove(damaged / "state" / "0" / "1" / "4.delta")
    return {
        "run": ["run", "shop/orders"],
        "status": ["status", "shop/orders"],
        "list": ["list", "shop/orders"],
        "rebind": ["rebind", "shop/orders", "events", "--landing", elsewhere, "--dry-run"],
        "inspect": ["checkpoint", "inspect", a],
        "verify": ["checkpoint", "verify", damaged],
        "history": ["checkpoint", "history", b, "--last", 1],
        "diff": ["checkpoint", "diff", a, b],
        "debug": ["debug"],
        "jars": ["jars"],
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
    same = {"tidemill jars fetch", "tidemill accept", "tidemill rename-source"}
    assert with_json - shown == same, "they print the object of `tidemill jars` and `tidemill rebind`"


def test_the_parts_of_an_error_are_named():
    for key in ("type", "transient", "what", "lost", "fix", "class"):
        assert f"`{key}`" in sections()["tidemill run"]


def test_concepts_names_every_field_of_a_ledger_line():
    text = prose("docs/concepts.md").split("**A line of the ledger**")[1]
    assert {"pipeline", "stream", *(field.name for field in fields(BatchRecord))} <= set(
        re.findall(r"`(\w+)`", text)
    )


def test_testing_names_only_what_the_kit_has():
    text = prose("docs/testing.md")
    table = text.split("| call | does |")[1].split("\n\n")[0]
    named = re.findall(r"^\| `(\w+)\(", table, re.MULTILINE)
    assert named
    assert all(callable(getattr(Scratch, name)) for name in named)
    result = re.search(r"Each result is a `StreamResult`: (.+) and more", text)
    attributes = {field.name for field in fields(StreamResult)} | set(vars(StreamResult))
    assert result
    assert set(re.findall(r"`(\w+)", result[1])) <= attributes


def test_the_picture_is_well_formed():
    root = ET.parse(ROOT / "docs/images/picture.svg").getroot()  # noqa: S314 - a file of ours
    assert root.tag.endswith("svg")
