"""tidemill.toml as one resolved target, for the command, sensors, checks and runs alike."""
