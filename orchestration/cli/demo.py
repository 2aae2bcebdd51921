"""`tidemill demo`: ad events, and the ads pipeline on them through Dagster, twice."""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli import demo_generate

app = typer.Typer()
app.command("generate")(demo_generate.generate)
