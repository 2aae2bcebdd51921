"""The tables and files that a run reads and writes: guards, pinned versions, preparation."""
