"""Random edits between runs: each is refused and leaves everything as it was, or the rows equal an oracle."""
