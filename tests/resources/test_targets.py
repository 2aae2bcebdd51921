"""One resolver decides what a target is; the file cannot hold a secret or a typing error."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.streaming.errors import ConfigurationError
from pipelines.streaming.target import FolderBinding, KafkaCluster, TopicBinding
from resources.engine.engine import SparkSettings
from resources.target.config import read_config
from resources.target.resolve import ResolvedTarget, resolve

PROD = """
pipelines = ["shop:shop"]
default_target = "prod"

[targets.prod]
lake = "lake"
landing = "in/${REGION}"

[targets.prod.spark]
mode = "cluster"
master = "spark://spark:7077"
driver_memory = "2g"
shuffle_partitions = 8
[targets.prod.spark.conf]
"spark.executor.cores" = 4
"spark.sql.adaptive.enabled" = true
"spark.hadoop.fs.s3a.secret.key" = "${S3_SECRET}"

[targets.prod.kafka.default]
bootstrap = "kafka:9093"
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
username = "tidemill"
password = "${KAFKA_PASSWORD}"
ca_file = "ca.pem"

[targets.prod.feeds]
"clicks" = { topic = "clicks.v2" }
"ads.csv" = { path = "once/ads" }
"""
ENVIRON = {"REGION": "eu", "KAFKA_PASSWORD": "hunter2", "S3_SECRET": "swordfish"}


def project(folder: Path, text: str = PROD) -> Path:
    (folder / "tidemill.toml").write_text(text, encoding="utf-8")
    return folder


def resolved(folder: Path, text: str = PROD, target: str | None = None, **flags) -> ResolvedTarget:
    environ = {**ENVIRON, **flags.pop("environ", {})}
    return resolve(target, environ=environ, start=project(folder, text), **flags)


def error(folder: Path, text: str, target: str | None = None, **flags) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolved(folder, text, target, **flags)
    return str(caught.value)


def test_a_target_of_the_file(tmp_path):
    target = resolved(tmp_path)

    kafka = KafkaCluster(
        bootstrap="kafka:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        username="tidemill",
        password="hunter2",  # noqa: S106 - the test's own
        ca_file=str(tmp_path / "ca.pem"),
    )
    assert target.name == "prod"
    assert target.lake.root == tmp_path / "lake"
    assert target.cluster("default") == kafka
    assert target.binding("clicks") == TopicBinding(kafka, "clicks.v2")
    assert target.binding("ads.csv") == FolderBinding(tmp_path / "once/ads")
    assert target.binding("views") == FolderBinding(tmp_path / "in/eu/views")
    assert target.spark == SparkSettings(
        mode="cluster",
        master="spark://spark:7077",
        driver_memory="2g",
        shuffle_partitions=8,
        conf={
            "spark.executor.cores": "4",
            "spark.sql.adaptive.enabled": "true",
            "spark.hadoop.fs.s3a.secret.key": "swordfish",
        },
    )


def test_dev_needs_nothing(tmp_path):
    target = resolved(tmp_path, text="")

    assert target.name == "dev"
    assert target.lake.root == tmp_path / ".tidemill/lake"
    assert target.binding("clicks") == FolderBinding(tmp_path / ".tidemill/landing/clicks")
    assert target.spark == SparkSettings()


@pytest.mark.parametrize(
    ("flag", "environ", "name", "origin"),
    [
        ("a", {"TIDEMILL_TARGET": "b"}, "a", "flag --target"),
        (None, {"TIDEMILL_TARGET": "b"}, "b", "environment TIDEMILL_TARGET"),
        (None, {}, "c", "tidemill.toml"),
    ],
)
def test_flag_before_environment_before_file(tmp_path, flag, environ, name, origin):
    text = 'default_target = "c"\n' + "".join(f'[targets.{each}]\nlake = "{each}"\n' for each in "abc")

    target = resolved(tmp_path, text, flag, environ=environ)

    assert target.name == name
    assert target.lake.root == tmp_path / name
    assert target.origins["target"] == origin


def test_the_file_is_found_upwards_or_named(tmp_path):
    below = project(tmp_path, "") / "a" / "b"
    below.mkdir(parents=True)

    assert resolve(environ={}, start=below).config == tmp_path / "tidemill.toml"

    other = tmp_path / "other.toml"
    other.write_text('[targets.dev]\nlake = "there"\n', encoding="utf-8")
    named = resolve(environ={"TIDEMILL_CONFIG": "../../other.toml"}, start=below)
    assert named.lake.root.resolve() == tmp_path / "there"


def test_no_file_is_an_error_that_says_where_it_looked(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no tidemill\.toml in .* or above"):
        resolve(environ={}, start=tmp_path)
    with pytest.raises(ConfigurationError, match="TIDEMILL_CONFIG names"):
        resolve(environ={"TIDEMILL_CONFIG": "gone.toml"}, start=tmp_path)


def test_lake_and_landing_flags_are_of_the_working_directory(tmp_path):
    target = resolved(tmp_path, lake="mine", landing="drop")

    assert target.lake.root == tmp_path / "mine"
    assert target.binding("clicks") == FolderBinding(tmp_path / "drop/clicks")
    assert target.binding("ads.csv") == FolderBinding(tmp_path / "drop/ads.csv")
    assert target.origins["lake"] == "flag --lake"


def test_a_kafka_flag_binds_every_feed_to_the_topic_of_its_name(tmp_path):
    target = resolved(tmp_path, text="", kafka="localhost:9092")

    assert target.binding("clicks") == TopicBinding(KafkaCluster(bootstrap="localhost:9092"), "clicks")
    assert target.cluster("default") == KafkaCluster(bootstrap="localhost:9092")


def test_credentials_go_only_to_the_cluster_they_are_for(tmp_path):
    assert (
        resolved(tmp_path, kafka="kafka:9093").binding("clicks").cluster.password == ENVIRON["KAFKA_PASSWORD"]
    )
    assert resolved(tmp_path, kafka="elsewhere:9093").binding("clicks").cluster.password is None


def test_landing_and_kafka_flags_exclude_each_other(tmp_path):
    assert "give one of them" in error(tmp_path, PROD, landing="x", kafka="y:1")


def test_a_feed_that_nothing_binds(tmp_path):
    target = resolved(tmp_path, '[targets.x]\nlake = "l"\n[targets.x.feeds]\nclicks = {path = "c"}', "x")

    with pytest.raises(ConfigurationError, match=r"bind the feed 'clickz'\. Did you mean 'clicks'\?"):
        target.binding("clickz")
    with pytest.raises(ConfigurationError, match="no Kafka cluster 'default'"):
        target.cluster("default")


def test_a_folder_that_spark_would_take_for_a_pattern(tmp_path):
    with pytest.raises(ConfigurationError, match="take it for a pattern"):
        resolved(tmp_path, text="", landing="in[1]").binding("clicks")


def test_secrets_are_shown_nowhere(tmp_path):
    target = resolved(tmp_path)

    shown = f"{target} {target!r} {target.cluster('default')} {target.settings()} {target.binding('clicks')}"
    masked = {setting.name: setting for setting in target.settings() if setting.value == "********"}

    assert "hunter2" not in shown
    assert "swordfish" not in str(target.settings())
    assert set(masked) == {"kafka.default.password", "spark.conf.spark.hadoop.fs.s3a.secret.key"}
    assert masked["kafka.default.password"].origin == "tidemill.toml [targets.prod] from KAFKA_PASSWORD"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('password = "${KAFKA_PASSWORD}"', 'password = "s3cr3t"'),
        ('password = "${KAFKA_PASSWORD}"', 'password = "x${KAFKA_PASSWORD}s3cr3t"'),
        ('password = "${KAFKA_PASSWORD}"', "password = ['s3cr3t']"),
        ('"${S3_SECRET}"', '"s3cr3t"'),
        ('mode = "cluster"\nmaster', 'mode = "connect"\nremote = "sc://h:1/;token=s3cr3t"\nmaster'),
    ],
)
def test_a_secret_in_the_file_is_refused_without_a_word_of_it(tmp_path, right, wrong):
    message = error(tmp_path, PROD.replace(right, wrong))

    assert "${" in message
    assert "s3cr3t" not in message


def test_a_token_of_a_connect_server_comes_from_the_environment_and_is_masked(tmp_path):
    text = '[targets.c]\nlake = "l"\n[targets.c.spark]\nmode = "connect"\nremote = "sc://h:1/;token=${TOKEN};user_id=u"'

    target = resolved(tmp_path, text, "c", environ={"TOKEN": "tok"})

    assert target.spark.remote == "sc://h:1/;token=tok;user_id=u"
    assert "sc://h:1/;token=********;user_id=u" in {setting.value for setting in target.settings()}


def test_an_unset_variable_is_named(tmp_path):
    message = error(tmp_path, PROD, environ={"KAFKA_PASSWORD": ""})

    assert "KAFKA_PASSWORD is not set" in message
    assert "kafka.default.password of target 'prod'" in message


def test_variables_of_other_targets_are_not_needed(tmp_path):
    assert resolved(tmp_path, PROD, "dev", environ={"KAFKA_PASSWORD": ""}).name == "dev"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline = []", "pipeline is an unknown key. Did you mean 'pipelines'?"),
        ("[targets.x]\nlakes = 'l'", "targets.x.lakes is an unknown key. Did you mean 'lake'?"),
        (
            "[targets.x.spark]\ndriver = 1",
            "targets.x.spark.driver is an unknown key. Did you mean 'driver_memory'?",
        ),
        ("[targets.x.kafka.c]\nboot = 'b:1'", "targets.x.kafka.c.boot is an unknown key."),
        (
            "[targets.x.feeds]\nf = {paht = 'p'}",
            "targets.x.feeds.f.paht is an unknown key. Did you mean 'path'?",
        ),
        (
            "[targets.x.feeds]\nf = {path = 'p', topic = 't'}",
            "targets.x.feeds.f needs a path or a topic, one",
        ),
        ("[targets.x.feeds]\nf = 'p'", "targets.x.feeds.f must be a table"),
        ("pipelines = 'ads'", "pipelines must be a list of texts"),
        ("[targets.x]\nlake = 3", "targets.x.lake must be a text"),
        ("targets = 1", "targets must be a table"),
        (
            "[targets.x.spark]\nmode = 'clusterr'",
            "mode is 'clusterr'; it is one of local, connect, cluster. Did you",
        ),
        ("[targets.x.spark]\nmode = 'connect'", "targets.x.spark.remote is missing"),
        ("[targets.x.spark]\nmode = 'cluster'", "targets.x.spark.master is missing"),
        ("[targets.x.spark]\nremote = 'sc://h'", "targets.x.spark.remote is for mode 'connect'"),
        ("[targets.x.spark]\nshuffle_partitions = true", "shuffle_partitions must be a whole number"),
        ("[targets.x.spark]\ndriver_memory = '1 GB'", "driver_memory is '1 GB'; write it like '2g'"),
        ("[targets.x.spark.conf]\nspark.a = 1", "targets.x.spark.conf.spark must be a text"),
        ("[targets.x.kafka.c]\nsecurity_protocol = 'SSL'", "targets.x.kafka.c.bootstrap is missing"),
        (
            "[targets.x.kafka.c]\nbootstrap = 'b:1'\nsecurity_protocol = 'SASL_SSL'",
            "password is missing, and security_protocol SASL_SSL needs it",
        ),
        (
            "[targets.x.kafka.c]\nbootstrap = 'b:1'\nusername = 'u'",
            "username is for security_protocol SASL_SSL",
        ),
        ("[targets.x.kafka.c]\nbootstrap = 'b:1'\nca_file = 'u'", "ca_file is for security_protocol SSL"),
        ("a = ", "cannot be read: "),
    ],
)
def test_a_fault_in_the_file_is_named(tmp_path, text, message):
    with pytest.raises(ConfigurationError) as caught:
        read_config(project(tmp_path, text) / "tidemill.toml")

    assert message in str(caught.value)


def test_all_faults_are_named_at_once(tmp_path):
    message = error(tmp_path, "a = 1\nb = 2\n[targets.x]\nlake = 3")

    assert all(part in message for part in ("a is an unknown", "b is an unknown", "targets.x.lake must be"))


def test_an_unknown_target_and_a_target_without_a_lake(tmp_path):
    assert "no target 'prd' (flag --target). Did you mean 'prod'? Known: dev, prod." in error(
        tmp_path, PROD, "prd"
    )
    assert "Target 'x' has no lake." in error(tmp_path, "[targets.x]", "x")
    assert resolved(tmp_path, "[targets.x]", "x", lake="l").lake.root == tmp_path / "l"


def test_a_lake_on_an_object_store_is_refused(tmp_path):
    assert "s3a://" in error(tmp_path, "", lake="s3a://bucket/lake")


def test_a_feed_on_a_cluster_that_is_not_there(tmp_path):
    text = "[targets.x]\nlake='l'\n[targets.x.feeds]\nf = {topic = 't', cluster = 'main'}\n"

    assert "on the Kafka cluster 'main', and there is none" in error(tmp_path, text, "x")


GOOD = "from pipelines.streaming import Pipeline\nshop = Pipeline('shop')\n"


def modules(folder: Path, monkeypatch, **sources: str) -> Path:
    """Modules beside the file, importable for one test and forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


def test_pipelines_are_imported_from_beside_the_file(tmp_path, monkeypatch):
    modules(tmp_path, monkeypatch, tm_shop_a=GOOD)

    pipelines = resolved(tmp_path, 'pipelines = ["tm_shop_a:shop"]').pipelines()

    assert [(name, pipeline.name) for name, pipeline in pipelines.items()] == [("shop", "shop")]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["tm_shop_b"], "is not of the form 'module:attribute'"),
        (["tm_gone:shop"], "there is no module 'tm_gone'"),
        (["tm_shop_b:shops"], "has no 'shops'. Its pipelines: shop."),
        (["tm_shop_b:Pipeline"], "is a type, not a Pipeline"),
        (["tm_raises:shop"], "raised ZeroDivisionError"),
        (["tm_needs:shop"], "No module named 'tm_not_installed'"),
        (["tm_shop_b:shop", "tm_shop_c:shop"], "'tm_shop_b:shop' and 'tm_shop_c:shop' are both named 'shop'"),
    ],
)
def test_a_pipeline_that_cannot_be_had(tmp_path, monkeypatch, entries, message):
    modules(
        tmp_path,
        monkeypatch,
        tm_shop_b=GOOD,
        tm_shop_c=GOOD,
        tm_raises="1 / 0",
        tm_needs="import tm_not_installed",
    )
    target = resolved(tmp_path, f"pipelines = {entries}")

    with pytest.raises(ConfigurationError) as caught:
        target.pipelines()

    assert message in str(caught.value)


def test_the_resolver_imports_nothing_heavy():
    code = (
        "import sys; import resources.target.resolve; resources.target.resolve.resolve; "
        "print(sorted({'pyspark', 'dagster', 'deltalake', 'pydantic', 'confluent_kafka'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"
