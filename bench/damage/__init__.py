"""The damage campaign: damaged checkpoints, judged by `verify` and started with Spark."""
