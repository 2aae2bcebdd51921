"""The quarantine of streams: a view, and its replay through today's rules."""
