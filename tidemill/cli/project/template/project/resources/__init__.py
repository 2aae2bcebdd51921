"""Resources of the assets in `orchestration/defs/`, and the settings of the Dagster instance."""
