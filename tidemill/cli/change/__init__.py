"""Commands that change the past, the records or the files of streams."""
