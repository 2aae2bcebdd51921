"""A lake's files: the layout of a lake, atomic writes, and the log of a Delta table."""
