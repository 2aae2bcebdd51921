"""The tables and files that a run reads and writes: guards and pinned versions."""
