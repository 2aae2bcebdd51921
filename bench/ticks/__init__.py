"""The time of a sensor's tick, and of loading the definitions, by the number of streams."""
