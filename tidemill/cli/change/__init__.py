"""Commands that change a stream's past, its records or its files."""
