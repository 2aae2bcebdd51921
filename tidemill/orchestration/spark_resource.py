"""SparkResource: Spark as a Dagster resource, one session for streams and for batch assets of your own."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from dagster import InitResourceContext, ResourceDependency
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr, model_validator

from tidemill.definitions.columns import DELETED
from tidemill.engines.engine import SparkEngine
from tidemill.errors import ConfigurationError
from tidemill.target.resolve import ResolvedTarget, resolve
from tidemill.target.spark_settings import SparkMode, SparkSettings, mode_of, remote_fault
from tidemill.text.names import StreamName
from tidemill.text.secret import Secret, is_secret, literal_fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkResource(LazyPySparkResource):
    """Spark and the rest of one target of `tidemill.toml`.

    Nothing starts before the first session is requested. All fields may be left out. A secret is never given as it
    is: write `${VAR}`, which is read from the environment when Spark starts.

    Attributes:
        target: The target, as `resolve` returns it; None: `TIDEMILL_TARGET`, then the file's default, resolved in
            the process of the run. The config of a run cannot change it: the assets, sensors and checks of a
            code location are about one target.
        mode: `local`, `warm`, `connect` or `cluster`, instead of the target's; by default what `master` is, if that
            is given.
        master: The master of `local`, `warm` and `cluster`, instead of the target's.
        remote: The server of `connect`, instead of the target's.
        parallel: How many streams of a run are side by side, instead of the target's.
        spark_config: Further confs of the application.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict)
    target: ResourceDependency[ResolvedTarget | None] = None  # type: ignore[assignment] # a descriptor
    mode: str | None = Field(default=None, pattern="^(local|warm|connect|cluster)$")
    master: str | None = None
    remote: str | None = None
    parallel: int | None = Field(default=None, ge=1)

    _resolved: ResolvedTarget | None = PrivateAttr(default=None)
    _engine: SparkEngine | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _refuse_secrets(self) -> Self:
        """Refuse a secret that is given as it is, here or in the config of a run."""
        for key, value in self.spark_config.items():
            if is_secret(key) and (reason := literal_fault(key, value)):
                raise ConfigurationError(
                    f"SparkResource: spark_config[{key!r}] {reason}.",
                    fix="Write the variable, and set it where the run starts.",
                    code="variable-missing",
                )
        if self.remote is not None and (reason := remote_fault(self.remote)):
            raise ConfigurationError(
                f"SparkResource: remote {reason}.",
                fix="Write the variable, and set it where the run starts.",
                code="variable-missing",
            )
        return self

    @property
    def resolved_target(self) -> ResolvedTarget:
        """The resolved target.

        Raises:
            ConfigurationError: There is a fault in tidemill.toml, or no such target.
        """
        if self._resolved is None:
            self._resolved = self.target or resolve()
        return self._resolved

    @property
    def engine(self) -> SparkEngine:
        """The source of sessions: each stream of a run gets its own, all of one JVM or server."""
        if self._engine is None:
            settings = self.resolved_target.spark
            confs = {
                key: Secret(value, f"SparkResource: spark_config[{key!r}]") if is_secret(key) else str(value)
                for key, value in self.spark_config.items()
            }
            remote = Secret(self.remote, "SparkResource: remote") if self.remote else settings.remote
            mode = self._mode(settings)
            self._engine = SparkEngine(
                replace(
                    settings,
                    mode=mode,
                    master=self.master or settings.master,
                    remote=remote,
                    parallel=self.parallel or settings.parallel,
                    server=self.resolved_target.server if mode == "warm" else None,
                    conf={**settings.conf, **confs},
                )
            )
        return self._engine

    def _mode(self, settings: SparkSettings) -> "SparkMode":
        if self.mode is not None:
            return cast("SparkMode", self.mode)
        if self.master is None or settings.mode == "warm":
            return settings.mode
        return mode_of(self.master)

    @property
    def spark_session(self) -> "SparkSession":
        """The session for batch assets of your own; it shares the JVM or server with the streams."""
        return self.engine.root()

    @property
    def spark_context(self) -> Any:
        """The session's SparkContext; `connect` and `warm` have none."""
        return self.spark_session.sparkContext

    def read(self, stream: str) -> "DataFrame":
        """Return the rows of a stream's table, for batch assets; tombstones of a merge are not among them.

        Args:
            stream: `<pipeline>/<stream>`.

        Raises:
            DefinitionError: The name is not of that form.
        """
        table = self.resolved_target.lake.table(StreamName.parse(stream))
        rows = self.spark_session.read.format("delta").load(str(table))
        return rows.where(f"NOT {DELETED}").drop(DELETED) if DELETED in rows.columns else rows

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        """Disconnect from a server; a JVM ends with the process, and a second run in the process reuses it."""
        del context
        if self._engine is None:
            return
        if self._engine.settings.mode in ("connect", "warm"):
            self._engine.stop()
        else:
            self._engine.drain()
