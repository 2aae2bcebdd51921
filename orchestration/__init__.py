"""What runs when: assets, checks and jobs of the pipelines in Dagster, and the command. Imports nothing."""
