"""Alerts about streams, and the channels that deliver them: a webhook and e-mail."""
