"""The warm server of a target: Spark Connect on loopback, which outlives the runs that share it."""
