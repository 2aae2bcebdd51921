"""Folders of files as a source: the backlog and the definition."""
