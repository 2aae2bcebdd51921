"""Kafka as a source: its client, its backlog, its definition."""
