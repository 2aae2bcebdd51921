"""One resolver decides what a target is; the file cannot hold a secret or a typing error."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.raising import raises
from tidemill.engines import launch
from tidemill.engines.engine import SparkEngine
from tidemill.engines.launch import application_confs
from tidemill.target.config import find_config, read_config
from tidemill.target.resolve import ResolvedTarget, resolve
from tidemill.target.spark_settings import SparkSettings
from tidemill.target.target import FolderBinding, KafkaCluster, TopicBinding
from tidemill.text.names import StreamName
from tidemill.text.secret import Secret, is_secret

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
CONNECT = PROD.replace(
    'mode = "cluster"\nmaster = "spark://spark:7077"',
    'mode = "connect"\nremote = "sc://h:1/;token=${SPARK_TOKEN};user_id=u"',
)
ENVIRON = {"REGION": "eu"}
SECRETS = {"KAFKA_PASSWORD": "hunter2", "S3_SECRET": "swordfish", "SPARK_TOKEN": "t0ken"}


@pytest.fixture
def _secrets_are_set(monkeypatch):
    for variable, value in SECRETS.items():
        monkeypatch.setenv(variable, value)


def project(folder: Path, text: str = PROD) -> Path:
    (folder / "tidemill.toml").write_text(text, encoding="utf-8")
    return folder


def resolved(folder: Path, text: str = PROD, target: str | None = None, **flags) -> ResolvedTarget:
    environ = {**ENVIRON, **flags.pop("environ", {})}
    return resolve(target, environ=environ, start=project(folder, text), **flags)


def test_a_target_of_the_file(tmp_path):
    target = resolved(tmp_path)

    kafka = KafkaCluster(
        bootstrap="kafka:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        username="tidemill",
        password=Secret("${KAFKA_PASSWORD}", ""),
        ca_file=str(tmp_path / "ca.pem"),
    )
    assert target.name == "prod"
    assert Path(target.lake.uri) == tmp_path / "lake"
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
            "spark.hadoop.fs.s3a.secret.key": Secret("${S3_SECRET}", ""),
        },
    )


def test_dev_needs_nothing(tmp_path):
    target = resolved(tmp_path, text="")

    assert target.name == "dev"
    assert Path(target.lake.uri) == tmp_path / ".tidemill/lake"
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
    text = 'default_target = "c"\n' + "".join(f'[targets.{name}]\nlake = "{name}"\n' for name in "abc")

    target = resolved(tmp_path, text, flag, environ=environ)

    assert target.name == name
    assert Path(target.lake.uri) == tmp_path / name
    assert target.origins["target"] == origin


def test_the_file_is_found_upwards_or_named(tmp_path):
    below = project(tmp_path, "") / "a" / "b"
    below.mkdir(parents=True)

    assert resolve(environ={}, start=below).config == tmp_path / "tidemill.toml"

    other = tmp_path / "other.toml"
    other.write_text('[targets.dev]\nlake = "there"\n', encoding="utf-8")
    named = resolve(environ={"TIDEMILL_CONFIG": "../../other.toml"}, start=below)
    assert Path(named.lake.uri).resolve() == tmp_path / "there"


def test_no_file_is_an_error_that_says_where_it_looked(tmp_path):
    with raises("config-missing", tmp_path):
        resolve(environ={}, start=tmp_path)
    with raises("config-missing", "TIDEMILL_CONFIG", "gone.toml"):
        resolve(environ={"TIDEMILL_CONFIG": "gone.toml"}, start=tmp_path)


def test_a_file_of_another_user_is_refused_unless_it_is_named(tmp_path, monkeypatch):
    config = project(tmp_path, "") / "tidemill.toml"
    if os.getuid() == 0:
        os.chown(config, 54_321, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 54_321)

    owner = f"{config} belongs to another user (uid {config.stat().st_uid})"
    with raises("config-not-trusted", owner, f"export TIDEMILL_CONFIG={config}"):
        resolve(environ={}, start=tmp_path)

    assert resolve(environ={"TIDEMILL_CONFIG": str(config)}, start=tmp_path).config == config


def test_a_file_of_root_is_accepted(tmp_path, monkeypatch):
    project(tmp_path, "")
    root = SimpleNamespace(st_uid=0, st_mode=0o100644)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    monkeypatch.setattr(Path, "stat", lambda _path, **_options: root)

    assert find_config({}, tmp_path) == tmp_path / "tidemill.toml"


def test_consumer_properties_of_a_cluster(tmp_path):
    text = PROD + '[targets.prod.kafka.default.consumer]\n"max.partition.fetch.bytes" = 1048576\n'
    default, given = resolved(tmp_path).cluster("default"), resolved(tmp_path, text).cluster("default")

    assert default.isolation_level == given.isolation_level == "read_committed"
    assert given.consumer == {"max.partition.fetch.bytes": "1048576"}
    uncommitted = replace(given, consumer={"isolation.level": "read_uncommitted"}, sasl_mechanism=None)
    assert uncommitted.spark_options()["kafka.isolation.level"] == "read_uncommitted"


def test_lake_and_landing_flags_are_of_the_working_directory(tmp_path):
    target = resolved(tmp_path, lake="mine", landing="drop")

    assert Path(target.lake.uri) == tmp_path / "mine"
    assert target.binding("clicks") == FolderBinding(tmp_path / "drop/clicks")
    assert target.binding("ads.csv") == FolderBinding(tmp_path / "drop/ads.csv")
    assert target.origins["lake"] == "flag --lake"


def test_a_kafka_flag_binds_every_feed_to_the_topic_of_its_name(tmp_path):
    target = resolved(tmp_path, text="", kafka="localhost:9092")

    assert target.binding("clicks") == TopicBinding(KafkaCluster(bootstrap="localhost:9092"), "clicks")
    assert target.cluster("default") == KafkaCluster(bootstrap="localhost:9092")


def test_credentials_go_only_to_the_cluster_they_are_for(tmp_path):
    same = resolved(tmp_path, kafka="kafka:9093").binding("clicks").cluster
    assert same.password == Secret("${KAFKA_PASSWORD}", "")
    assert resolved(tmp_path, kafka="elsewhere:9093").binding("clicks").cluster.password is None


def test_landing_and_kafka_flags_exclude_each_other(tmp_path):
    with raises("arguments-conflict", "--landing", "--kafka"):
        resolved(tmp_path, PROD, landing="x", kafka="y:1")


def test_a_feed_that_nothing_binds(tmp_path):
    target = resolved(tmp_path, '[targets.x]\nlake = "l"\n[targets.x.feeds]\nclicks = {path = "c"}', "x")

    with raises("feed-not-bound", "'clickz'", "Did you mean 'clicks'?"):
        target.binding("clickz")
    with raises("kafka-cluster-missing", "'default'"):
        target.cluster("default")


def test_a_folder_that_spark_would_take_for_a_pattern(tmp_path):
    with raises("name-is-pattern", "in[1]"):
        resolved(tmp_path, text="", landing="in[1]").binding("clicks")


@pytest.mark.usefixtures("_secrets_are_set")
def test_secrets_are_shown_nowhere(tmp_path):
    target = resolved(tmp_path, CONNECT)
    cluster = target.cluster("default")

    shown = f"{target} {target!r} {cluster} {cluster.password} {target.settings()} {target.binding('clicks')}"
    masked = {setting.name: setting for setting in target.settings() if "********" in setting.value}

    assert not [secret for secret in SECRETS.values() if secret in shown]
    assert {name: setting.value for name, setting in masked.items()} == {
        "kafka.default.password": "********",
        "spark.conf.spark.hadoop.fs.s3a.secret.key": "********",
        "spark.remote": "sc://h:1/;token=********;user_id=u",
    }
    assert masked["kafka.default.password"].origin == "tidemill.toml [targets.prod] from KAFKA_PASSWORD"


def test_a_password_that_code_gives_is_masked_too(tmp_path):
    target = resolved(tmp_path, "", kafka="b:1")
    cluster = KafkaCluster("b:1", "SASL_SSL", "PLAIN", username="me", password="hunter2")  # noqa: S106
    target = replace(target, clusters={"default": cluster})

    assert "hunter2" not in f"{target!r} {cluster} {target.settings()}"


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
    with raises("config-invalid", "${") as caught:
        resolved(tmp_path, PROD.replace(right, wrong))

    assert "s3cr3t" not in str(caught.value)


def test_secrets_are_read_when_a_connection_is_made(tmp_path, monkeypatch):
    target = resolved(tmp_path, CONNECT)
    cluster = target.cluster("default")
    for variable, value in SECRETS.items():
        monkeypatch.setenv(variable, value)

    assert cluster.client_config()["sasl.password"] == "hunter2"
    assert cluster.spark_options()["kafka.sasl.jaas.config"].endswith(
        'username="tidemill" password="hunter2";'
    )
    assert target.spark.conf["spark.hadoop.fs.s3a.secret.key"].reveal() == "swordfish"
    assert target.spark.remote.reveal() == "sc://h:1/;token=t0ken;user_id=u"


@pytest.mark.parametrize(
    ("connect", "variable", "setting"),
    [
        (
            lambda target: target.cluster("default").client_config(),
            "KAFKA_PASSWORD",
            "kafka.default.password",
        ),
        (
            lambda target: target.cluster("default").spark_options(),
            "KAFKA_PASSWORD",
            "kafka.default.password",
        ),
        (lambda target: SparkEngine(target.spark).root(), "SPARK_TOKEN", "spark.remote"),
        (
            lambda target: application_confs(target.spark),
            "S3_SECRET",
            "spark.conf.spark.hadoop.fs.s3a.secret.key",
        ),
    ],
)
def test_a_secret_that_is_not_set_is_named_by_the_connection(
    tmp_path, monkeypatch, connect, variable, setting
):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, "" if name == variable else value)

    needed = f"{variable} is not set in the environment, and {setting} of target 'prod' needs it."
    with raises("variable-missing", needed, f"export {variable}=..."):
        connect(resolved(tmp_path, CONNECT))


def test_a_username_can_be_a_secret(tmp_path, monkeypatch):
    cluster = resolved(tmp_path, PROD.replace('"tidemill"', '"${KAFKA_USER}"')).cluster("default")
    monkeypatch.setenv("KAFKA_USER", "svc")
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")

    assert cluster.client_config()["sasl.username"] == "svc"
    assert len({cluster, cluster}) == 1, "clusters are keys of the cache of clients"


def test_another_value_that_needs_a_variable_is_named_when_the_target_is_resolved(tmp_path):
    with raises("variable-missing", "REGION", "landing of target 'prod'"):
        resolved(tmp_path, PROD, environ={"REGION": ""})
    assert resolved(tmp_path, PROD, environ={"REGION": ""}, landing="in").name == "prod"


def test_variables_of_other_targets_are_not_needed(tmp_path):
    assert resolved(tmp_path, PROD, "dev", environ={"REGION": ""}).name == "dev"


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
        ("pipelines = 'ads'", "pipelines must be a list of strings"),
        ("[targets.x]\nlake = 3", "targets.x.lake must be a string"),
        ("targets = 1", "targets must be a table"),
        (
            "[targets.x.spark]\nmode = 'clusterr'",
            "mode is 'clusterr'; it is one of local, warm, connect, cluster. Did you",
        ),
        ("[targets.x.spark]\nmode = 'connect'", "targets.x.spark.remote is missing"),
        ("[targets.x.spark]\nmode = 'cluster'", "targets.x.spark.master is missing"),
        (
            "[targets.x.spark]\nmode = 'local'\nmaster = 'yarn'",
            "targets.x.spark.mode is 'local', and the master yarn is a cluster",
        ),
        ("[targets.x.spark]\nparallel = 0", "targets.x.spark.parallel must be an integer of at least 1"),
        ("[targets.x.spark]\nremote = 'sc://h'", "targets.x.spark.remote is for mode 'connect'"),
        (
            "[targets.x.spark]\nidle_timeout = '1 hour'",
            "targets.x.spark.idle_timeout is for mode 'warm'",
        ),
        (
            "[targets.x.spark]\nmode = 'warm'\nidle_timeout = 'soon'",
            "targets.x.spark.idle_timeout is 'soon'; write a length of time like '10 minutes'",
        ),
        ("[targets.x.spark]\nshuffle_partitions = true", "shuffle_partitions must be an integer"),
        ("[targets.x.spark]\ndriver_memory = '1 GB'", "driver_memory is '1 GB'; write it like '2g'"),
        ("[targets.x.spark.conf]\nspark.a = 1", "targets.x.spark.conf.spark must be a string"),
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
        (
            "[targets.x.kafka.c]\nbootstrap = 'b:1'\n[targets.x.kafka.c.consumer]\n'sasl.jaas.config' = 's3cr3t'",
            "targets.x.kafka.c.consumer.sasl.jaas.config cannot be set here; write username and password",
        ),
        (
            "[targets.x.kafka.c]\nbootstrap = 'b:1'\n[targets.x.kafka.c.consumer]\n'ssl.key.password' = 's3cr3t'",
            "targets.x.kafka.c.consumer.ssl.key.password holds a credential",
        ),
        (
            "[targets.x.kafka.c]\nbootstrap = 'b:1'\n[targets.x.kafka.c.consumer]\n'auto.offset.reset' = 'latest'",
            "consumer.auto.offset.reset cannot be set here; give starting_offsets= to the source",
        ),
        (
            "[targets.x.kafka.c]\nbootstrap = 'b:1'\n[targets.x.kafka.c.consumer]\n'kafka.check.crcs' = false",
            "consumer.kafka.check.crcs has Spark's prefix; write 'check.crcs'",
        ),
        ("a = ", "cannot be read: "),
    ],
)
def test_a_fault_in_the_file_is_named(tmp_path, text, message):
    code = "config-unreadable" if text == "a = " else "config-invalid"
    with raises(code, message) as caught:
        read_config(project(tmp_path, text) / "tidemill.toml", {})

    assert "s3cr3t" not in str(caught.value)


def test_all_faults_are_named_at_once(tmp_path):
    with raises("config-invalid", "a is an unknown", "b is an unknown", "targets.x.lake must be"):
        resolved(tmp_path, "a = 1\nb = 2\n[targets.x]\nlake = 3")


def test_an_unknown_target_and_a_target_without_a_lake(tmp_path):
    with raises("target-missing", "'prd' (flag --target)", "Did you mean 'prod'? Known: dev, prod."):
        resolved(tmp_path, PROD, "prd")
    with raises("lake-missing", "'x'"):
        resolved(tmp_path, "[targets.x]", "x")
    assert Path(resolved(tmp_path, "[targets.x]", "x", lake="l").lake.uri) == tmp_path / "l"


STORE = """
[targets.x]
lake = "s3://bucket/a/lake"
[targets.x.store]
endpoint = "http://127.0.0.1:9000"
region = "eu-central-1"
access_key_id = "AKIA1"
secret_access_key = "${STORE_KEY}"
session_token = "${STORE_TOKEN}"
"""


def test_a_lake_on_s3_and_how_it_is_reached(tmp_path, monkeypatch):
    target = resolved(tmp_path, STORE, "x")
    monkeypatch.setenv("STORE_KEY", "hidden1")
    monkeypatch.setenv("STORE_TOKEN", "hidden2")

    assert target.lake.uri == "s3a://bucket/a/lake"
    assert target.lake.table(StreamName("shop", "orders")).uri == "s3a://bucket/a/lake/tables/shop/orders"
    assert target.lake.store.delta_options() == {
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_region": "eu-central-1",
        "aws_access_key_id": "AKIA1",
        "aws_secret_access_key": "hidden1",
        "aws_session_token": "hidden2",
        "aws_allow_http": "true",
    }
    confs = launch.store_confs(target.spark)
    assert confs["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert confs["spark.hadoop.fs.s3a.secret.key"].reveal() == "hidden1"
    assert all(is_secret(name) for name in confs if name.endswith((".secret.key", ".session.token")))
    shown = {setting.name: setting for setting in target.settings()}
    assert shown["store.endpoint"].value == "http://127.0.0.1:9000"
    assert shown["store.secret_access_key"].value == "********"
    assert "tidemill.toml" in shown["store.region"].origin
    assert "hidden" not in repr(target) + repr(target.settings())


def test_a_lake_on_s3_of_a_flag(tmp_path):
    target = resolved(tmp_path, STORE, "x", lake="s3a://other/lake/")

    assert (target.lake.uri, target.spark.store.region) == ("s3a://other/lake", "eu-central-1")
    assert resolved(tmp_path, "[targets.x]", "x", lake="l").spark.store is None


@pytest.mark.parametrize("lake", ["s3://", "s3://B", "s3://bucket/a b", "s3://bucket/../x", "s3://bucket//x"])
def test_an_address_without_a_bucket_or_with_other_characters_is_refused(tmp_path, lake):
    with raises("store-address-invalid", repr(lake), "s3://bucket/prefix"):
        resolved(tmp_path, "", lake=lake)


def test_a_lake_on_another_kind_of_store_is_refused(tmp_path):
    with raises("store-not-supported", "The lake 'gs://bucket/lake' is on gs://", "s3://") as caught:
        resolved(tmp_path, "", lake="gs://bucket/lake")

    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ('secret_access_key = "literal"', "secret_access_key takes only a variable"),
        ('access_key_id = "a"', "secret_access_key is missing"),
        ('secret_access_key = "${A}"', "access_key_id is missing"),
        ('session_token = "${A}"', "access_key_id is missing"),
        ('endpoint = "host:9000"', "endpoint is 'host:9000'; write it like"),
        ('bucket = "b"', "bucket is an unknown key"),
    ],
)
def test_a_fault_in_how_a_store_is_reached(tmp_path, settings, fault):
    with raises("config-invalid", fault) as caught:
        resolved(tmp_path, f'[targets.x]\nlake = "s3://bucket/lake"\n[targets.x.store]\n{settings}', "x")
    assert "literal" not in str(caught.value)


def test_feeds_on_another_kind_of_store_are_refused(tmp_path):
    with raises("store-not-supported", "'gs://bucket/in' is on gs://", "s3://"):
        resolved(tmp_path, "", landing="gs://bucket/in")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ('landing = "gs://bucket/in"', "targets.x.landing is wrong: .* on gs://"),
        (
            '[targets.x.feeds.orders]\npath = "gs://bucket/in"',
            "targets.x.feeds.orders.path is wrong: .* on gs://",
        ),
        ('landing = "s3://bucket//in"', "targets.x.landing is wrong: 's3://bucket//in' is no address"),
    ],
)
def test_feeds_on_a_store_that_cannot_be_used_are_a_fault_of_the_file(tmp_path, settings, fault):
    with raises("config-invalid") as caught:
        resolved(tmp_path, f'[targets.x]\nlake = "l"\n{settings}', "x")
    assert re.search(fault, str(caught.value))


@pytest.mark.parametrize("store", ["", '[targets.x.store]\nregion = "eu-central-1"'])
def test_feeds_on_s3_and_how_it_is_reached(tmp_path, store):
    """Spark has the jars and the confs of S3 then, and checkpoints in a folder stay as they are."""
    bound = '[targets.x]\nlake = "l"\nlanding = "s3://inbox/a"\n[targets.x.feeds]\n"v" = {path = "s3a://other/v"}\n'
    target = resolved(tmp_path, f"{bound}{store}", "x")

    assert str(target.binding("orders")) == "s3a://inbox/a/orders"
    assert str(target.binding("v")) == "s3a://other/v"
    assert target.lake.elsewhere("s3://inbox/a/orders") == target.binding("orders").path
    confs = launch.store_confs(target.spark)
    assert confs.get("spark.hadoop.fs.s3a.endpoint.region") == ("eu-central-1" if store else None)
    assert not [name for name in confs if "checkpointFileManager" in name]
    assert {setting.name: setting.value for setting in target.settings()}["feeds"] == "s3a://inbox/a/<feed>"


def test_feeds_of_a_flag_on_s3(tmp_path):
    target = resolved(tmp_path, "", landing="s3://inbox/a")

    assert str(target.binding("orders")) == "s3a://inbox/a/orders"
    assert target.spark.store is not None


def test_an_address_on_s3_needs_a_target_that_says_how_it_is_reached(tmp_path):
    text = "[targets.x]\nlake = 'l'\n[targets.y]\nlake = 'l'\n[targets.y.store]\n"
    target = resolved(tmp_path, text, "x")

    with raises("store-not-configured", "s3://inbox/a is on S3", "[targets.<name>.store]"):
        target.lake.elsewhere("s3://inbox/a")
    assert resolved(tmp_path, text, "y").lake.table_at("s3://inbox/a").uri == "s3a://inbox/a"


def test_a_path_may_be_written_as_a_file_address(tmp_path):
    target = resolved(
        tmp_path, f'[targets.x]\nlake = "file://{tmp_path}/l"\nlanding = "file://{tmp_path}/in"', "x"
    )

    assert (Path(target.lake.uri), target.default_binding) == (tmp_path / "l", tmp_path / "in")


def test_a_feed_on_a_cluster_that_is_not_there(tmp_path):
    text = "[targets.x]\nlake='l'\n[targets.x.feeds]\nf = {topic = 't', cluster = 'main'}\n"

    with raises("config-invalid", "feeds.f.topic is on the Kafka cluster 'main'"):
        resolved(tmp_path, text, "x")


def test_the_resolver_imports_nothing_heavy():
    code = (
        "import sys; import tidemill.target.resolve; tidemill.target.resolve.resolve; "
        "print(sorted({'pyspark', 'dagster', 'deltalake', 'pydantic', 'confluent_kafka'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"
