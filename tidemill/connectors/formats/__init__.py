"""Formats: how the text of a feed's record becomes columns, one module per format."""
