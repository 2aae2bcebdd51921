"""Sources: one folder per kind, with its definition, how Spark loads it, and its backlog."""
