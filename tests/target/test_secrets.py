"""Which settings hold a secret, and references to secrets that show nothing."""

import pytest

from tests.support.raising import raises
from tidemill.text.secret import Secret, is_secret

SECRETS = """
spark.hadoop.fs.s3a.secret.key
spark.hadoop.fs.s3a.access.key
spark.hadoop.fs.s3a.session.token
spark.hadoop.fs.s3a.bucket.logs.access.key
spark.hadoop.fs.s3a.server-side-encryption.key
spark.hadoop.fs.s3a.encryption.key
spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net
fs.azure.account.key
spark.hadoop.fs.azure.account.oauth2.client.secret.lake.dfs.core.windows.net
spark.hadoop.fs.azure.account.oauth2.user.password
spark.hadoop.fs.azure.account.oauth2.refresh.token
spark.hadoop.fs.azure.sas.fixed.token.lake.dfs.core.windows.net
spark.hadoop.fs.azure.encryption.encoded.client-provided-key
spark.hadoop.fs.gs.auth.service.account.private.key
spark.hadoop.google.cloud.auth.service.account.private.key.id
spark.hadoop.fs.oss.accessKeySecret
spark.hadoop.fs.oss.accessKeyId
spark.hadoop.parquet.encryption.key.list
spark.ssl.keyPassword
spark.ssl.keyStorePassword
spark.ssl.ui.trustStorePassword
spark.authenticate.secret
spark.connect.authenticate.token
spark.kubernetes.authenticate.submission.oauthToken
spark.kafka.clusters.main.ssl.truststore.password
spark.hadoop.javax.jdo.option.ConnectionPassword
kafka.sasl.jaas.config
sasl.jaas.config
ssl.keystore.key
ssl.key.password
sasl.oauthbearer.client.credentials.client.secret
MY_API_KEY
spark.my.apiKey
spark.hadoop.dfs.credential
spark.db.passwd
"""
NO_SECRETS = """
spark.hadoop.fs.s3a.aws.credentials.provider
spark.hadoop.fs.s3a.assumed.role.credentials.provider
spark.hadoop.fs.s3a.bucket.logs.aws.credentials.provider
spark.hadoop.fs.s3a.aws.credentials.provider.mapping
spark.hadoop.hadoop.security.credential.provider.path
spark.hadoop.hadoop.security.credstore.java-keystore-provider.password-file
spark.hadoop.fs.azure.account.oauth.provider.type.lake.dfs.core.windows.net
spark.hadoop.fs.azure.account.keyprovider.lake.dfs.core.windows.net
spark.hadoop.fs.azure.sas.token.provider.type
spark.hadoop.fs.azure.sas.token.provider.type.lake.dfs.core.windows.net
spark.hadoop.fs.azure.account.oauth2.refresh.token.endpoint.lake.dfs.core.windows.net
spark.hadoop.fs.azure.account.oauth2.client.endpoint
spark.security.credentials.kafka.enabled
spark.security.credentials.renewalRatio
spark.kafka.clusters.main.sasl.token.mechanism
spark.kubernetes.authenticate.submission.oauthTokenFile
spark.kubernetes.authenticate.submission.clientKeyFile
spark.kubernetes.driver.secrets.spark-secret
spark.kubernetes.executor.secretKeyRef.AWS_SECRET
spark.authenticate.secret.driver.file
spark.authenticate.secretBitLength
spark.io.encryption.keySizeBits
spark.io.encryption.keygen.algorithm
spark.io.encryption.enabled
spark.network.crypto.enabled
sasl.oauthbearer.token.endpoint.url
sasl.login.callback.handler.class
ssl.keystore.location
ssl.keystore.type
ssl.truststore.certificates
spark.executor.memory
spark.sql.shuffle.partitions
spark.databricks.delta.snapshotPartitions
group.id
max.partition.fetch.bytes
isolation.level
spark.yarn.keytab
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_what_holds_a_secret(name):
    assert is_secret(name)
    assert is_secret(name.upper())


@pytest.mark.parametrize("name", NO_SECRETS.split())
def test_what_is_only_about_a_secret_or_about_something_else(name):
    assert not is_secret(name)


def test_a_reference_shows_a_mask_and_reveals_the_value(monkeypatch):
    monkeypatch.setenv("TM_PASSWORD", "hunter2")
    secret = Secret("user:${TM_PASSWORD}@", "db.url")

    assert str(secret) == f"{secret}" == "user:********@"
    assert "hunter2" not in repr(secret)
    assert secret.reveal() == "user:hunter2@"
    assert secret.variables == ("TM_PASSWORD",)
    assert len({secret, Secret("user:${TM_PASSWORD}@", "another setting")}) == 1


def test_a_variable_that_is_not_set_is_named_with_the_setting(monkeypatch):
    monkeypatch.setenv("TM_PASSWORD", "")

    with raises("variable-missing", "TM_PASSWORD", "db.url"):
        Secret("${TM_PASSWORD}", "db.url").reveal()
