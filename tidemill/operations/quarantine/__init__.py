"""The quarantine of feeds: a view, and its replay through today's rules."""
