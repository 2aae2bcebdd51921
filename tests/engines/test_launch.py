"""A real start of Spark: no conf is on a command line, and nothing is left of the file that has them."""

import pytest

from tests.support.script_result import script_result

pytestmark = pytest.mark.jvm

KEY = "spark.hadoop.fs.s3a.secret.key"
VALUE = r" sword=fish #1: C:\new!"
# In a process of its own: it starts a JVM, and another thread watches all its children from the first moment.
SCRIPT = """
import json, os, sys, time
from pathlib import Path
from threading import Event, Thread
import psutil
from tidemill.text.secret import Secret
from tidemill.engines.engine import SparkEngine
from tidemill.target.spark_settings import SparkSettings
from tests.support.small import SMALL

key = sys.argv[1]
lines, modes, done = set(), {}, Event()

def watch():
    while not done.is_set():
        for child in psutil.Process().children(recursive=True):
            try:
                lines.add(" ".join(child.cmdline()))
            except psutil.Error:
                pass
        for path in Path(os.environ["TMPDIR"]).glob("tidemill-*.conf"):
            try:
                modes[path.name] = oct(path.stat().st_mode & 0o777)
            except FileNotFoundError:
                pass
        time.sleep(0.005)

watcher = Thread(target=watch)
watcher.start()
settings = SparkSettings(master="local[1]", conf={**SMALL, key: Secret("${TM_SECRET}", key)})
engine = SparkEngine(settings)
spark = engine.new()
time.sleep(0.1)
done.set()
watcher.join()
jvm = spark.sparkContext._jvm
document = {
    "commands": sorted(lines),
    "modes": modes,
    "files": [path.name for path in Path(os.environ["TMPDIR"]).glob("tidemill-*.conf")],
    "submit_args": os.environ.get("PYSPARK_SUBMIT_ARGS"),
    "conf": spark.sparkContext.getConf().get(key),
    "read_by_spark_submit": jvm.java.lang.System.getProperty(key),
    "default": spark.sparkContext.getConf().get("spark.tm.default"),
    "memory": jvm.java.lang.Runtime.getRuntime().maxMemory(),
}
engine.stop()
again = SparkEngine(SparkSettings(master="local[1]", conf={**SMALL, "spark.tm.second": "2"})).new()
document["second"] = again.sparkContext.getConf().get("spark.tm.second")
print("RESULT", json.dumps(document))
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> dict:
    home = tmp_path_factory.mktemp("launch")
    (home / "script.py").write_text(SCRIPT)
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text("spark.tm.default from-the-file\n")
    (home / "tmp").mkdir()
    return script_result(
        home / "script.py", KEY, TMPDIR=str(home / "tmp"), SPARK_CONF_DIR=str(home / "conf"), TM_SECRET=VALUE
    )


def test_no_conf_is_on_the_command_line_of_any_process(started):
    assert any("org.apache.spark.deploy.SparkSubmit" in command for command in started["commands"])
    for command in started["commands"]:
        assert VALUE.strip() not in command
        assert "--conf" not in command


def test_the_file_is_readable_by_this_user_only_and_gone_afterwards(started):
    assert list(started["modes"].values()) == ["0o600"]
    assert started["files"] == []
    assert started["submit_args"] is None


def test_spark_has_the_secret_exactly(started):
    assert started["conf"] == VALUE
    # Spark removes the spaces around the values of its files.
    assert started["read_by_spark_submit"] == VALUE.strip()


def test_the_defaults_of_the_installation_and_the_memory_of_the_driver_count(started):
    assert started["default"] == "from-the-file"
    assert 900_000_000 < started["memory"] <= 1_100_000_000


def test_a_second_application_of_the_process_has_its_own_confs(started):
    assert started["second"] == "2"
