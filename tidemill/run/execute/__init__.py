"""The execution of a run: queries, recovery, progress and the records of each batch."""
