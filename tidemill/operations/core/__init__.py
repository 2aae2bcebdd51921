"""The core of every operation: a plan, its steps, its staging tables, its record."""
