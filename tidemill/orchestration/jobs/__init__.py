"""Operations as Dagster jobs and partitions."""
