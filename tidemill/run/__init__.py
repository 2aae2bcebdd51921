"""One run of one stream, and of many: from what waits to rows in a table, exactly once."""
