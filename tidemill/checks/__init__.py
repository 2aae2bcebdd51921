"""Checks of a stream: what is wrong with it, in numbers and a sentence, read without a JVM and without Dagster.

A run evaluates all of them for each of its streams. `tidemill check` and a schedule evaluate the same functions.
"""
