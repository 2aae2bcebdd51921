"""Assets, jobs, schedules and sensors of your own; what they define takes precedence."""
