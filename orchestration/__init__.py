"""What runs when: Dagster's assets, checks and jobs of the pipelines, and the command. Imports nothing itself."""
