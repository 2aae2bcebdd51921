"""Catalogs, which know tables by name: the tables of streams are registered there, and sources are read by name."""
