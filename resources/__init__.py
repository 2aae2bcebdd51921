"""What the assets of this project use, and the settings of the Dagster instance."""
