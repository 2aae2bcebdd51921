"""Random SIGKILLs of real runs, until every table equals its oracle."""
