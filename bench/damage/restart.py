"""Start queries on sound or damaged checkpoints and report the result of each start.

`python restart.py` reads lines such as `{"case": NAME, "folder": DIR}` and answers each with a line of JSON. Like
`make.py` it imports no module of this repository, so that it runs with any pyspark from 3.5 on.
"""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import make
from pyspark.sql import DataFrame, SparkSession

TIMEOUT_SECONDS = 240
COUNTED = ("n", "count")


class Sink:
    """A table that identifies batches by the query's id and their number, as Delta does, and skips known ones.

    It begins without rows and with the last batch before the start, so that it has only what the start adds.
    """

    def __init__(self, query_id: str, last_batch: int, mode: str) -> None:
        self._has = query_id, last_batch
        self._mode = mode
        self._appended: Counter[str] = Counter()
        self._upserted: dict[str, str] = {}

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write one batch; a known one is computed too, or Spark 4.2 misses the commits of its state."""
        collected = rows.collect()
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query_id == self._has[0] and batch <= self._has[1]:
            return
        for row in collected:
            fields = row.asDict(recursive=True)
            self._appended[json.dumps(fields, default=str, sort_keys=True)] += 1
            key = {name: value for name, value in fields.items() if name not in COUNTED}
            self._upserted[json.dumps(key, default=str)] = json.dumps([fields.get(name) for name in COUNTED])

    def rows(self) -> list[str]:
        """Return the rows that the start added, regardless of their batches."""
        if self._mode == "append":
            return sorted(self._appended.elements())
        return sorted(f"{key} {value}" for key, value in self._upserted.items())


def start(spark: SparkSession, case: make.Case, folder: Path) -> dict[str, Any]:
    """Run the query over its input; return the added rows, the number of rows in its state and its watermark."""
    facts = json.loads((folder / "facts.json").read_text())
    sink = Sink(facts["query_id"], max(entry["batchId"] for entry in facts["progress"]), case.mode)
    query = (
        case.query(make.Scene(spark, folder, case))
        .writeStream.foreachBatch(sink.write)
        .outputMode(case.mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(TIMEOUT_SECONDS):
            return {"error": f"The query did not end within {TIMEOUT_SECONDS} s."}
        progress = make.progress_of(query)
        last = progress[-1] if progress else {}
        state = [operator["numRowsTotal"] for operator in last.get("stateOperators", [])]
        watermark = last.get("eventTime", {}).get("watermark")
        return {"rows": sink.rows(), "state": state, "watermark": watermark}
    finally:
        query.stop()


def answer(spark: SparkSession, name: str, folder: Path) -> dict[str, Any]:
    """Return the result of a start; `error` has the innermost cause if it fails."""
    case = make.CASES[name]
    before = {key: spark.conf.get(key, None) for key in case.confs}
    for key, value in case.confs.items():
        spark.conf.set(key, value)
    try:
        return start(spark, case, folder)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {"error": cause(error)}
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
        # The state of a failed run stays loaded until the maintenance, which never runs here.
        package = spark._jvm.org.apache.spark.sql.execution.streaming.state  # noqa: SLF001
        getattr(getattr(package, "StateStore$"), "MODULE$").stop()


def cause(error: BaseException) -> str:
    """Return the innermost error without the trace, the plan and the ids around it."""
    while (inner := getattr(error, "_cause", None)) is not None:
        error = inner
    text = " ".join(str(error).split("=== Streaming Query ===")[0].split())
    return re.sub(r"^.*?terminated with exception: ", "", text)[:300]


def main() -> None:
    """Answer requests until the input ends."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = make.session(os.environ.get("TIDEMILL_TEST_JARS", ""), maintenance="1h")
    spark.sparkContext.setLogLevel("OFF")
    try:
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(answer(spark, request["case"], Path(request["folder"]))), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
