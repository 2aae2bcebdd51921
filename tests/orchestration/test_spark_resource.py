"""SparkResource: one target, one engine, nothing started before a session is asked for."""

import pytest
from dagster import DagsterInvalidConfigError, DagsterResourceFunctionError, asset, materialize
from dagster_pyspark import LazyPySparkResource
from pydantic import ValidationError

from tidemill.engines.engine import SparkEngine
from tidemill.errors import ConfigurationError
from tidemill.orchestration.spark_resource import SparkResource
from tidemill.target.resolve import resolve

FILE = """
pipelines = []

[targets.dev]
lake = "dev-lake"

[targets.dev.spark]
master = "local[2]"

[targets.dev.spark.conf]
"spark.sql.ansi.enabled" = "false"

[targets.shared]
lake = "shared-lake"

[targets.shared.spark]
mode = "connect"
remote = "sc://server:15002"
"""


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    (tmp_path / "tidemill.toml").write_text(FILE)
    monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))
    monkeypatch.delenv("TIDEMILL_TARGET", raising=False)


def test_the_target_says_where_spark_runs():
    settings = SparkResource().engine.settings
    assert (settings.mode, settings.master) == ("local", "local[2]")
    settings = SparkResource(target=resolve("shared")).engine.settings
    assert (settings.mode, settings.remote) == ("connect", "sc://server:15002")


def test_the_environment_of_the_run_decides_the_target(monkeypatch):
    resource = SparkResource()
    monkeypatch.setenv("TIDEMILL_TARGET", "shared")
    assert resource.resolved_target.name == "shared"


def test_fields_come_before_the_target():
    resource = SparkResource(mode="cluster", master="spark://host:7077", spark_config={"spark.cores.max": 4})
    settings = resource.engine.settings
    assert (settings.mode, settings.master) == ("cluster", "spark://host:7077")
    assert settings.conf == {"spark.sql.ansi.enabled": "false", "spark.cores.max": "4"}


def test_warm_has_one_server_per_target_whoever_asks_for_it(tmp_path):
    warm = SparkResource(mode="warm").engine.settings
    assert (warm.mode, warm.server) == ("warm", resolve().server)
    assert resolve().spark.server is None
    (tmp_path / "tidemill.toml").write_text(FILE.replace('"connect"\nremote = "sc://server:15002"', '"warm"'))
    command = resolve("shared").spark
    assert SparkResource(target=resolve("shared")).engine.settings == command
    assert command.server not in (None, resolve("shared", lake="other").spark.server, resolve().server)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValidationError, match="mode"):
        SparkResource(mode="remote")


def test_no_run_can_name_another_target_than_its_code_location():
    @asset
    def report(spark: SparkResource) -> None:
        raise AssertionError(spark)

    with pytest.raises(DagsterInvalidConfigError, match='unexpected config entry "target"'):
        materialize(
            [report],
            resources={"spark": SparkResource.configure_at_launch(target=resolve("shared"))},
            run_config={"resources": {"spark": {"config": {"target": "dev"}}}},
        )


def test_the_config_of_a_run_keeps_the_target_of_the_code_location():
    settings = []

    @asset
    def report(spark: SparkResource) -> None:
        settings.append((spark.resolved_target.name, spark.engine.settings.mode))

    materialize(
        [report],
        resources={"spark": SparkResource.configure_at_launch(target=resolve("shared"))},
        run_config={"resources": {"spark": {"config": {"mode": "local"}}}},
    )
    assert settings == [("shared", "local")]


def test_it_stands_wherever_dagsters_own_resource_is_asked_for():
    resource = SparkResource()
    assert isinstance(resource, LazyPySparkResource)
    assert resource.engine is resource.engine
    assert resource.engine._root is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"spark_config": {"spark.hadoop.fs.s3a.secret.key": "s3cr3t"}},
        {"spark_config": {"spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "s3cr3t"}},
        {"remote": "sc://server:15002/;token=s3cr3t"},
    ],
)
def test_a_secret_is_refused_without_a_word_of_it_and_with_the_way_around(arguments):
    with pytest.raises(ConfigurationError) as caught:
        SparkResource(**arguments)

    assert "${" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_a_secret_is_a_variable_that_is_read_when_spark_starts(monkeypatch):
    resource = SparkResource(
        mode="connect",
        remote="sc://server:15002/;token=${TM_TOKEN}",
        spark_config={"spark.hadoop.fs.s3a.secret.key": "${TM_KEY}"},
    )
    settings = resource.engine.settings
    monkeypatch.setenv("TM_TOKEN", "t0ken")
    monkeypatch.setenv("TM_KEY", "s3cr3t")

    assert settings.remote.reveal() == "sc://server:15002/;token=t0ken"
    assert settings.conf["spark.hadoop.fs.s3a.secret.key"].reveal() == "s3cr3t"
    assert "s3cr3t" not in repr(settings)


def test_a_secret_in_the_config_of_a_run_is_refused():
    @asset
    def report(spark: SparkResource) -> None:
        raise AssertionError(spark)

    with pytest.raises(DagsterResourceFunctionError) as caught:
        materialize(
            [report],
            resources={"spark": SparkResource()},
            run_config={"resources": {"spark": {"config": {"spark_config": {"a.password": "s3cr3t"}}}}},
        )
    assert isinstance(caught.value.user_exception, ConfigurationError)
    assert "s3cr3t" not in f"{caught.value} {caught.value.user_exception}"


def test_a_run_waits_at_its_end_for_the_listeners_of_its_jvm(monkeypatch):
    drained = []

    def drain(engine):
        drained.append(engine)

    monkeypatch.setattr(SparkEngine, "drain", drain)

    @asset
    def reading(spark: SparkResource):
        assert spark.engine.settings.mode == "local"

    assert materialize([reading], resources={"spark": SparkResource()}).success
    assert len(drained) == 1
