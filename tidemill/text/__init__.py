"""Names, durations, plurals, checksums and SQL as strings: parsing and formatting that imports no other room."""
