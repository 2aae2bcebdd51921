"""SparkResource: Spark as a Dagster resource, one session for streams and for batch assets of your own."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dagster import InitResourceContext
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from pipelines.streaming.columns import DELETED
from pipelines.streaming.names import StreamName
from resources.engine.engine import SparkEngine, SparkMode
from resources.target.resolve import ResolvedTarget, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkResource(LazyPySparkResource):
    """Spark and the target of one target, as `tidemill.toml` says, resolved in the process of the run.

    Nothing starts before the first session is asked for. All fields may be left out; those that are given
    mean what the flags of the command mean.

    Attributes:
        target: The target; None: `TIDEMILL_TARGET`, then the file's default.
        lake: Another lake than the target's.
        landing: Binds every feed to the folder of its name below.
        kafka: Binds every feed to the topic of its name, on the cluster with these bootstrap servers.
        mode: `local`, `connect` or `cluster`, instead of the target's.
        master: The master of `local` and `cluster`, instead of the target's.
        remote: The server of `connect`, instead of the target's.
        spark_config: Further confs of the application.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict)
    target: str | None = None
    lake: str | None = None
    landing: str | None = None
    kafka: str | None = None
    mode: str | None = Field(default=None, pattern="^(local|connect|cluster)$")
    master: str | None = None
    remote: str | None = None

    _resolved: ResolvedTarget | None = PrivateAttr(default=None)
    _engine: SparkEngine | None = PrivateAttr(default=None)

    @property
    def resolved_target(self) -> ResolvedTarget:
        """The resolved target.

        Raises:
            ConfigurationError: the target is not as it must be.
        """
        if self._resolved is None:
            self._resolved = resolve(self.target, lake=self.lake, landing=self.landing, kafka=self.kafka)
        return self._resolved

    @property
    def engine(self) -> SparkEngine:
        """Where sessions come from: the streams of a run get one each, all of one JVM or server."""
        if self._engine is None:
            settings = self.resolved_target.spark
            confs = {key: str(value) for key, value in self.spark_config.items()}
            self._engine = SparkEngine(
                replace(
                    settings,
                    mode=cast("SparkMode", self.mode or settings.mode),
                    master=self.master or settings.master,
                    remote=self.remote or settings.remote,
                    conf={**settings.conf, **confs},
                )
            )
        return self._engine

    @property
    def spark_session(self) -> "SparkSession":
        """The session for batch assets of your own; it shares the JVM or server with the streams."""
        return self.engine.root()

    @property
    def spark_context(self) -> Any:
        """The session's SparkContext; there is none with `connect`."""
        return self.spark_session.sparkContext

    def read(self, stream: str) -> "DataFrame":
        """The rows of a stream's table, for batch assets; tombstones of a merge are not among them.

        Args:
            stream: `<pipeline>/<stream>`.

        Raises:
            DefinitionError: the name is not of that form.
        """
        table = self.resolved_target.lake.table(StreamName.parse(stream))
        rows = self.spark_session.read.format("delta").load(str(table))
        return rows.where(f"NOT {DELETED}").drop(DELETED) if DELETED in rows.columns else rows

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        """Leaves a server; a JVM of its own ends with the process, and a second run in it starts warm."""
        del context
        if self._engine is not None and self._engine.settings.mode == "connect":
            self._engine.stop()
