"""What suits a laptop is not forced on a cluster, and what a target adds does not replace what is ours."""

import pytest

from tidemill.engines.engine import SparkEngine
from tidemill.engines.launch import application_confs
from tidemill.orchestration.spark_resource import SparkResource
from tidemill.target.resolve import resolve
from tidemill.target.spark_settings import SparkSettings, mode_of

DELTA = "io.delta.sql.DeltaSparkSessionExtension"
OF_A_LAPTOP = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def target(tmp_path, monkeypatch, spark):
    (tmp_path / "tidemill.toml").write_text(f"pipelines = []\n[targets.dev]\n[targets.dev.spark]\n{spark}\n")
    monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))
    return resolve()


@pytest.mark.parametrize(
    ("master", "mode"),
    [
        (None, "local"),
        ("local[2]", "local"),
        ("local-cluster[2,1,1024]", "local"),
        ("spark://host:7077", "cluster"),
        ("yarn", "cluster"),
        ("k8s://https://host", "cluster"),
    ],
)
def test_a_master_says_which_mode_it_is(tmp_path, monkeypatch, master, mode):
    assert mode_of(master) == mode
    if master is not None:
        assert target(tmp_path, monkeypatch, f'master = "{master}"').spark.mode == mode
        assert SparkResource(master=master).engine.settings.mode == mode


def test_a_local_start_has_the_defaults_of_a_laptop_and_a_cluster_has_its_own():
    local = application_confs(SparkSettings())
    assert OF_A_LAPTOP.items() <= local.items()
    cluster = application_confs(SparkSettings(mode="cluster", master="spark://host:7077"))
    assert not OF_A_LAPTOP.keys() & cluster.keys()
    assert cluster["spark.master"] == "spark://host:7077"
    assert cluster["spark.sql.catalog.spark_catalog"] == local["spark.sql.catalog.spark_catalog"]
    given = SparkSettings(
        mode="cluster", master="yarn", driver_memory="3g", conf={"spark.ui.enabled": "true"}
    )
    assert application_confs(given)["spark.driver.memory"] == "3g"
    assert application_confs(given)["spark.ui.enabled"] == "true"


def test_compiled_plans_of_many_streams_are_kept():
    entries = "spark.sql.codegen.cache.maxEntries"
    for settings in (
        SparkSettings(),
        SparkSettings(mode="warm"),
        SparkSettings(mode="cluster", master="yarn"),
    ):
        assert application_confs(settings)[entries] == "1000"
    assert application_confs(SparkSettings(conf={entries: "50"}))[entries] == "50"


def test_jars_and_extensions_of_a_target_are_added_to_ours():
    ours = application_confs(SparkSettings())
    conf = {
        "spark.jars": "/opt/a.jar, /opt/b.jar",
        "spark.jars.packages": "org.example:c:1",
        "spark.sql.extensions": f"org.example.Extension,{DELTA}",
        "spark.sql.catalog.iceberg": "org.example.Catalog",
    }
    confs = application_confs(SparkSettings(conf=conf))
    assert confs["spark.jars"] == f"{ours['spark.jars']},/opt/a.jar,/opt/b.jar"
    assert confs["spark.sql.extensions"] == f"{DELTA},org.example.Extension"
    assert confs["spark.jars.packages"] == "org.example:c:1"
    assert confs["spark.sql.catalog.iceberg"] == "org.example.Catalog"


def test_streams_side_by_side_are_a_setting_of_the_target_and_of_the_resource(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert SparkEngine(SparkSettings()).default_parallel() == 2
    assert SparkEngine(SparkSettings(mode="cluster", master="yarn")).default_parallel() == 4
    target(tmp_path, monkeypatch, "parallel = 12")
    assert SparkResource().engine.default_parallel() == 12
    assert SparkResource(parallel=3).engine.default_parallel() == 3


def test_a_cluster_decides_its_shuffle_partitions(monkeypatch):
    class Session:
        conf = {"spark.sql.shuffle.partitions": "96"}  # noqa: RUF012

    monkeypatch.setattr(SparkEngine, "root", lambda _: Session)
    assert SparkEngine(SparkSettings(mode="cluster", master="yarn")).default_partitions() == 96
    assert SparkEngine(SparkSettings(mode="connect", remote="sc://h")).default_partitions() == 96
    assert (
        SparkEngine(SparkSettings(mode="cluster", master="yarn", shuffle_partitions=7)).default_partitions()
        == 7
    )
    assert 2 <= SparkEngine(SparkSettings()).default_partitions() <= 8


def test_a_jvm_of_a_run_that_has_little_to_read_compiles_once():
    once = "-XX:TieredStopAtLevel=1"
    options = "spark.driver.extraJavaOptions"
    assert once not in application_confs(SparkSettings())[options]
    assert once in application_confs(SparkSettings(), little=True)[options]
    for settings in (SparkSettings(mode="warm"), SparkSettings(mode="cluster", master="yarn")):
        assert once not in application_confs(settings, little=True)[options]
    given = SparkSettings(conf={options: "-XX:TieredStopAtLevel=4"})
    assert application_confs(given, little=True)[options].endswith("-XX:TieredStopAtLevel=4"), (
        "the last one counts"
    )


@pytest.mark.parametrize("mode", ["local", "warm"])
@pytest.mark.parametrize(("cores", "collector"), [(2, "-XX:+UseSerialGC"), (8, "-XX:+UseParallelGC")])
def test_the_collector_of_a_jvm_on_this_machine_follows_from_its_cores(mode, cores, collector, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert collector in application_confs(SparkSettings(mode=mode))["spark.driver.extraJavaOptions"]


def test_a_jvm_gets_no_second_collector(monkeypatch):
    options = "spark.driver.extraJavaOptions"

    def collectors(settings: SparkSettings) -> list[str]:
        return [word for word in application_confs(settings)[options].split() if word.endswith("GC")]

    assert collectors(SparkSettings(mode="cluster", master="yarn")) == []
    assert collectors(SparkSettings(conf={options: "-XX:+UseG1GC -Dx=y"})) == ["-XX:+UseG1GC"]
    assert len(collectors(SparkSettings(conf={options: "-XX:MaxGCPauseMillis=100"}))) == 1
    for variable in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        with monkeypatch.context() as patched:
            patched.setenv(variable, "-XX:+UseZGC")
            assert collectors(SparkSettings()) == []
