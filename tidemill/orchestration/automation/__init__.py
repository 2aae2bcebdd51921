"""Sensors and schedules: when a run starts, and what keeps it from starting twice."""
