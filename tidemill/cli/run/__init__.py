"""Commands that run or show streams."""
