"""A local Spark that keeps quiet, and is gone with the block.

What Java and its log have to say goes to a file, from the first line on: it would tear a live table to pieces. If Spark
does not start, the end of that file says why.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from unskew.core.errors import UnskewError
from unskew.spark.frame.jvm import end_gateway

__all__ = ["QUICK", "STEADY", "DemoError", "check_java", "local_spark"]

_OLDEST_JAVA = 17
_SPARE = 2  # slots for the jobs that plan while a batch runs
_VERSION = re.compile(r'version "(\d+)')
_LAST_LINES = 8
STEADY = "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
# Two cores run the compiler of the JVM too: for two minutes the quick one is the better, for both arms.
QUICK = f"-XX:TieredStopAtLevel=1 {STEADY}"
_ANOTHER = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS")
_INSTALL = (
    f"Spark needs Java {_OLDEST_JAVA} or newer: install a JRE (Debian, Ubuntu: apt-get install "
    "openjdk-17-jre-headless) or set JAVA_HOME; `make demo` in a clone finds or installs one"
)


class DemoError(UnskewError, RuntimeError):
    """The demo cannot run here; says why, and what to do."""


def check_java() -> None:
    """Refuse where Spark would fail to start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise DemoError(f"no java is on the PATH and JAVA_HOME is not set. {_INSTALL}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as why:
        raise DemoError(f"{java} cannot be run ({why.strerror}). {_INSTALL}") from None
    found = _VERSION.search(said)
    if found is None or int(found.group(1)) < _OLDEST_JAVA:
        raise DemoError(f"{java} is Java {found.group(1) if found else 'of an unknown version'}. {_INSTALL}")


@contextmanager
def local_spark(partitions: int, folder: Path, java: str = QUICK) -> Iterator[SparkSession]:
    """A session with a slot for each partition; its files live in ``folder``. ``java``: options of its Java."""
    log = folder / "spark.log"
    logging.getLogger().addHandler(logging.NullHandler())  # py4j and agents say much after Ctrl-C
    with _interrupts() as interrupts, ExitStack() as stack:
        stack.callback(end_gateway)
        interrupts.held = True
        with _stderr_to(log):
            try:
                spark = _started(partitions, folder, java)
            except Exception as why:  # PySpark and py4j have many kinds; each is told with the log's reason
                raise DemoError(f"Spark did not start: {_why(why, log)}") from why
        stack.callback(spark.stop)
        interrupts.listen()
        interrupts.held = False
        interrupts.check()
        yield spark


class _Interrupts:
    """Ctrl-C. While ``held`` it waits, a second one does not; afterwards it is told as what it is, whatever pyspark
    makes of it.

    It is held while pyspark waits for Java to come up: nobody here could end that process, and it does not always end
    by itself.
    """

    def __init__(self) -> None:
        self.held, self._came = False, False

    def __call__(self, *_: object) -> None:
        waits = self.held and not self._came
        self._came = True
        if not waits:
            raise KeyboardInterrupt

    def listen(self) -> None:
        """From now on; pyspark sets a handler of its own when it starts."""
        if threading.current_thread() is threading.main_thread():  # no signal comes to another one
            signal.signal(signal.SIGINT, self)

    def check(self) -> None:
        if self._came:
            raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    ours, before = _Interrupts(), signal.getsignal(signal.SIGINT)
    ours.listen()
    try:
        yield ours
    except Exception:  # what broke because of Ctrl-C is told as Ctrl-C
        ours.check()
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is ours:
            signal.signal(signal.SIGINT, before)


def _started(partitions: int, folder: Path, java: str) -> SparkSession:
    for name in _ANOTHER:  # what the environment says of another Spark
        os.environ.pop(name, None)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{partitions + _SPARE}]").appName("unskew-demo")
    for name, value in _settings(partitions, folder, java).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _settings(partitions: int, folder: Path, java: str) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java,
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.daemon.module": "unskew.spark.demo.daemon",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(partitions),
    }


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """What is started inside writes its errors there; this process gets its own back."""
    sys.stderr.flush()
    kept = os.dup(2)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)


def _why(why: Exception, log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join([str(why).splitlines()[0], *lines[-_LAST_LINES:]])
