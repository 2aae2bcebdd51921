"""Delta tables as a source: the backlog and the definition."""
