"""What a user declares: pipelines, streams, and their options, as data that is checked when it is declared."""
