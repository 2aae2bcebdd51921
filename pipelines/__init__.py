"""What streams do: Spark only, no Dagster. `ads` ships; your pipelines go next to it."""
