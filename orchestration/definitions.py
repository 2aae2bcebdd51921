"""The code location that Dagster loads: every pipeline of the target, next to the code in `defs/`."""

from pathlib import Path

from dagster import load_from_defs_folder

from tidemill.orchestration import build_definitions

defs = build_definitions(defs=load_from_defs_folder(path_within_project=Path(__file__).parent))
