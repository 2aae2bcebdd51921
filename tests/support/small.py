"""Spark for many small queries: what is compiled fast, or not at all, beats what runs fast."""

SMALL = {
    # With one compiler level the code cache has 48 MB; once it is full, nothing is compiled any more.
    # Hadoop starts a `chmod` for every file it writes; with VFORK that is one program and not two.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
        "-Djdk.lang.Process.launchMechanism=VFORK"
    ),
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Checks of what Delta and Spark have just computed themselves; without Delta's the tests take a tenth less.
    "spark.databricks.delta.stateReconstructionValidation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def small_target(*pipelines: str) -> str:
    """A `tidemill.toml` with such a Spark: a lake and a landing folder next to it, and these pipelines."""
    confs = ", ".join(f'"{key}" = "{value}"' for key, value in SMALL.items())
    return f"""
pipelines = {list(pipelines)}

[targets.dev]
lake = "lake"
landing = "landing"

[targets.dev.spark]
master = "local[2]"
shuffle_partitions = 2
conf = {{ {confs} }}
"""
