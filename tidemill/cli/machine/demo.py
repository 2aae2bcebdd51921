"""`tidemill demo`: generate ad events and run the ads pipeline on them through Dagster, twice."""

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.machine import demo_input
from tidemill.cli.machine.demo_input import load_generator
from tidemill.cli.project.scaffold import EXAMPLE, write_project
from tidemill.cli.shared.output import (
    EXIT_INTERRUPTED,
    EXIT_PROBLEM,
    STREAMS_WIDTH,
    new_table,
    output_console,
)
from tidemill.errors import ConfigurationError
from tidemill.target.config import FILE_NAME, find_config
from tidemill.target.target import TopicBinding

if TYPE_CHECKING:
    from dagster import ExecuteInProcessResult
    from rich.console import Console

    from tidemill.target.resolve import ResolvedTarget

PROJECT = "tidemill-demo"
"""The folder that the demo writes its project to where there is none with the pipeline."""
ALERTS_VARIABLE = "ADS_ALERTS_TOPIC"
"""The pipeline also sends its alerts to the topic that this variable names."""

app = typer.Typer(add_completion=False)
app.command("generate")(demo_input.generate)
app.command("broker")(demo_input.broker)


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    *,
    events: Annotated[
        int, typer.Option(min=1, help="The number of events before each of the two runs.")
    ] = 50_000,
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="Send the events through a real Kafka broker that the demo starts."),
    ] = False,
    lake: Annotated[
        str | None,
        typer.Option("--lake", metavar="LAKE", help="Another lake: a folder, or s3://bucket/prefix."),
    ] = None,
) -> None:
    """Generate ad events and run the whole ads pipeline on them through Dagster, twice.

    In a project with the pipeline ads the demo runs there; elsewhere it first writes one to ./tidemill-demo. It
    uses the target `dev`: its lake, its landing folders and the Dagster instance in .tidemill/dagster, so that
    you can inspect tables, runs and plots afterwards. A second demo continues where the first ended. With
    --kafka the lake is a temporary one, because the broker's topics end with the demo, and the frequency alerts
    are also sent to a topic.
    """
    if context.invoked_subcommand is not None:
        return
    from tidemill.engines.java import require_java

    require_java()
    console = output_console(STREAMS_WIDTH)
    project = _project(console, lake)
    root = project.config.parent
    steps = [] if root == Path.cwd() else [f"cd {os.path.relpath(root)}"]
    with (
        chdir(root),
        _inputs(project, console, kafka=kafka) as inputs,
    ):  # Spark writes to the working directory
        for number in ("first", "second"):
            amounts = inputs.more(events)
            console.print(f"[bold]{amounts.records:,} records[/] in {inputs.location}. The {number} run:")
            if not _run(inputs, console):
                raise typer.Exit(EXIT_PROBLEM)
    if not kafka:
        of_lake = "" if lake is None else f" --lake {shlex.quote(project.lake.uri)}"
        steps += [f"tidemill status{of_lake}", 'DAGSTER_HOME="$PWD/.tidemill/dagster" dagster dev']
        tables = ".tidemill/lake" if lake is None else project.lake.uri
        console.print(f"The tables are in {tables}/tables. To see the result:", markup=False, soft_wrap=True)
        for step in steps:
            console.print(f"  {step}", markup=False, soft_wrap=True)
        if project.spark.mode == "local":
            console.print(
                "Each process that runs streams starts Spark. To keep one for the next runs, set "
                '[bold]mode = "warm"[/] in \\[targets.dev.spark] of tidemill.toml.'
            )


def _project(console: "Console", lake: str | None) -> "ResolvedTarget":
    """Return the target `dev` of the project at or above the working directory that has the pipeline.

    A project in ./tidemill-demo is used, or written, where there is none.
    """
    from tidemill.target.resolve import resolve

    with suppress(ConfigurationError):
        find_config(os.environ, Path.cwd())
        target = resolve("dev", lake=lake)
        if any(entry.startswith(f"pipelines.{EXAMPLE}:") for entry in target.pipeline_entries):
            return target
    folder = Path(PROJECT)
    if not (folder / FILE_NAME).exists():
        write_project(folder, name=PROJECT, pipeline=None, example=True)
        console.print(f"Wrote a project with the pipeline {EXAMPLE} to [bold]{folder}[/].")
    return resolve("dev", lake=lake, environ={**os.environ, "TIDEMILL_CONFIG": str(folder / FILE_NAME)})


@dataclass(slots=True)
class _Inputs:
    """The destination of the demo's events, and how many it has.

    Attributes:
        target: The target that the demo runs on.
        landing: The landing folder, for files; None for topics.
        bootstrap: The brokers, for topics; None for files.
        next_start: The index of the next event, for topics.
    """

    target: "ResolvedTarget"
    landing: Path | None = None
    bootstrap: str | None = None
    next_start: int = 0

    @property
    def location(self) -> str:
        """The destination as a message names it."""
        return self.bootstrap or str(self.landing)

    def more(self, events: int) -> Any:
        """Add events."""
        root = self.target.config.parent
        if self.landing is not None:
            return demo_input.add_files(root, self.landing, events=events)
        amounts = load_generator(root).produce(
            bootstrap=self.bootstrap, events=events, seed=demo_input.SEED, start=self.next_start
        )
        self.next_start = amounts.next_start
        return amounts


@contextmanager
def _inputs(project: "ResolvedTarget", console: "Console", *, kafka: bool) -> Iterator[_Inputs]:
    if not kafka:
        landing = project.default_binding
        feeds = load_generator(project.config.parent).FEEDS
        topics = [feed for feed in feeds if isinstance(project.binding(feed), TopicBinding)]
        if topics or not isinstance(landing, Path):
            raise ConfigurationError(
                f"The target 'dev' binds {', '.join(topics)} to Kafka, and the demo writes files.",
                fix="Remove it from [targets.dev.feeds] of tidemill.toml, or run `tidemill demo --kafka`.",
                code="demo-feeds-on-kafka",
            )
        yield _Inputs(project, landing=landing)
        return
    from tidemill.engines.dev.broker import Broker
    from tidemill.target.resolve import resolve

    with tempfile.TemporaryDirectory(prefix="tidemill-demo-") as folder, ExitStack() as stack:
        with console.status("starting a Kafka broker ..."):
            broker = stack.enter_context(Broker())
        environ = {**os.environ, "TIDEMILL_CONFIG": str(project.config)}
        target = resolve("dev", lake=Path(folder) / "lake", kafka=broker.bootstrap, environ=environ)
        # Before the pipeline is imported.
        os.environ.setdefault(ALERTS_VARIABLE, load_generator(project.config.parent).ALERTS_TOPIC)
        yield _Inputs(target, bootstrap=broker.bootstrap)


def _run(inputs: _Inputs, console: "Console") -> bool:
    """Run the pipeline's assets on the instance of the project; return whether the run succeeded."""
    with console.status("importing Dagster ..."):
        from dagster import DagsterInstance, DagsterRunStatus, materialize

        from tidemill.orchestration.assets.assets import streaming_assets, streaming_resources

    target = inputs.target
    os.environ["DAGSTER_HOME"] = str(_dagster_home(target))
    loaded = target.pipelines()
    for failure in loaded.failures:
        raise failure.error
    ads = loaded.pipelines[EXAMPLE]
    with DagsterInstance.get() as instance, console.status("the streams of ads ..."):
        result = materialize(
            [streaming_assets(ads, target=target)],
            instance=instance,
            resources=streaming_resources(target),
            raise_on_error=False,
            # A failure is shown below; Dagster's own log would print it twice more.
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        recorded = instance.get_run_by_id(result.run_id)
    if recorded is not None and recorded.status == DagsterRunStatus.CANCELED:
        console.print("Interrupted. No data was lost: the next run continues.")
        raise typer.Exit(EXIT_INTERRUPTED)
    _show(result, console)
    return result.success


def _dagster_home(target: "ResolvedTarget") -> Path:
    """Return the home of the project's Dagster instance, with the project's dagster.yaml in it."""
    home = target.config.parent / ".tidemill" / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.unlink(missing_ok=True)  # a link to where the file was
        settings.symlink_to(target.config.parent / "resources" / "dagster" / "dagster.yaml")
    return home


def _show(result: "ExecuteInProcessResult", console: "Console") -> None:
    numbers = ("Read", "Written", "Quarantined", "Late", "Batches", "Seconds", "Version")
    table = new_table("Stream", *numbers, right=numbers)
    names = ("rows_read", "rows_written", "rows_quarantined", "late", "batches", "seconds", "delta_version")
    for event in result.get_asset_materialization_events():
        metadata = event.materialization.metadata
        values = (metadata[f"tidemill/{name}"].value for name in names)
        table.add_row(
            str(event.materialization.asset_key.to_user_string()),
            *(f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in values),
        )
    console.print(table)
    if not result.success:
        for event in result.get_step_failure_events():
            failure = event.step_failure_data
            # A Tidemill error needs no stack; any other does.
            message = failure.user_failure_data and failure.user_failure_data.description
            console.print(message or failure.error_display_string, style="red", markup=False)
