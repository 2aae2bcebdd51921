"""The pipelines of this project, one folder each."""
