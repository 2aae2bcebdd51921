"""How S3, or a store with its interface, is reached: one description for all that read and write its buckets."""

from dataclasses import dataclass, field

from tidemill.text.secret import Secret, revealed


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How the buckets of a target are reached.

    Without keys each client asks its provider chain: the environment (`AWS_ACCESS_KEY_ID`, ...), web identity, the
    container, the instance.

    Attributes:
        endpoint: The address of another store than Amazon's: `https://minio.example.com:9000`.
        region: The region; None: `AWS_REGION`, or `us-east-1`.
        access_key_id: The key's id.
        secret_access_key: The key; never shown.
        session_token: The token of a temporary key; never shown.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | Secret | None = None
    secret_access_key: str | Secret | None = field(default=None, repr=False)
    session_token: str | Secret | None = field(default=None, repr=False)

    @property
    def is_plain_http(self) -> bool:
        """Whether the endpoint has no TLS, which clients allow only on request."""
        return (self.endpoint or "").startswith("http://")

    def client_options(self) -> dict[str, str]:
        """Return the options of obstore and delta-rs, which share an engine and its names.

        Raises:
            ConfigurationError: A variable that holds a credential is not set.
        """
        options = {
            "aws_endpoint": self.endpoint,
            "aws_region": self.region,
            **{f"aws_{name}": revealed(value) for name, value in self._credentials.items()},
        }
        return {name: value for name, value in options.items() if value}

    def spark_confs(self) -> dict[str, str | Secret]:
        """Return the confs of Hadoop's S3A for all buckets; those of a target for one bucket come before them."""
        names = {
            "access_key_id": "access.key",
            "secret_access_key": "secret.key",
            "session_token": "session.token",
        }
        confs = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": "true" if self.endpoint else None,
            # Each PUT would wait for the store to say that it may begin.
            "connection.expect.continue": "false",
            # A second client sends files of the state that way all the same, and not each server understands it.
            "optimized.copy.from.local.enabled": "false",
            "aws.credentials.provider": self._provider,
            **{names[name]: value for name, value in self._credentials.items()},
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in confs.items() if value}

    @property
    def _credentials(self) -> dict[str, str | Secret]:
        values = {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "session_token": self.session_token,
        }
        return {name: value for name, value in values.items() if value is not None}

    @property
    def _provider(self) -> str:
        if self.session_token is not None:
            return "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
        if self.access_key_id is not None:
            return "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
        return "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
