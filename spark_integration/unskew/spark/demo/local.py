"""A local Spark session without output on the terminal, which ends with the block.

The output of Java goes to a file from the first line on, because it would break a live table. If Spark does not start,
the error quotes the end of that file.
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

import pyspark
from pyspark.sql import SparkSession

from unskew.core.errors import UnskewError
from unskew.spark.frame.jvm import end_gateway

__all__ = ["QUICK", "STEADY", "DemoError", "check_java", "is_own", "local_spark"]

_OLDEST_JAVA = 17
_SPARE = 2  # slots for the jobs that plan while a batch runs
_VERSION = re.compile(r'version "(\d+)')
_LAST_LINES = 8
STEADY = "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
# The JVM's compiler uses the same two cores: in a run of two minutes C1 alone is better, for both arms.
QUICK = f"-XX:TieredStopAtLevel=1 {STEADY}"
_OTHER_SPARK = (  # settings of another Spark in the environment
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_REMOTE",
    "SPARK_CONNECT_MODE_ENABLED",
    "PYSPARK_SUBMIT_ARGS",
)
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
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as why:
        raise DemoError(f"{java} cannot be run ({why.strerror}). {_INSTALL}") from None
    version = _VERSION.search(output)
    if version is None or int(version.group(1)) < _OLDEST_JAVA:
        raise DemoError(f"{java} is Java {version.group(1) if version else 'of an unknown version'}. {_INSTALL}")


@contextmanager
def local_spark(partitions: int, folder: Path, java: str = QUICK) -> Iterator[SparkSession]:
    """A session with a slot for each partition; its files live in ``folder``. ``java``: options of its Java."""
    log = folder / "spark.log"
    logging.getLogger().addHandler(logging.NullHandler())  # py4j and agents log much after Ctrl-C
    with _interrupts() as interrupts, ExitStack() as stack:
        stack.callback(end_gateway)
        interrupts.held = True
        with _stderr_to(log):
            try:
                spark = _started(partitions, folder, java)
            except Exception as why:  # PySpark and py4j raise many types
                raise DemoError(f"Spark did not start: {_why(why, log)}") from why
        stack.callback(spark.stop)
        interrupts.listen()
        interrupts.held = False
        interrupts.check()
        yield spark


class _Interrupts:
    """Handles Ctrl-C: while ``held`` the first one waits, and a second one does not. Afterwards it is always raised as
    ``KeyboardInterrupt``, whatever exception pyspark turned it into.

    It is held while pyspark waits for Java to start: we could not end that process, and it does not always end by
    itself.
    """

    def __init__(self) -> None:
        self.held, self._interrupted = False, False

    def __call__(self, *_: object) -> None:
        waits = self.held and not self._interrupted
        self._interrupted = True
        if not waits:
            raise KeyboardInterrupt

    def listen(self) -> None:
        """Handle the signal from now on. Called again after pyspark's start, which sets a handler of its own."""
        if threading.current_thread() is threading.main_thread():  # other threads get no signals
            signal.signal(signal.SIGINT, self)

    def check(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    ours, before = _Interrupts(), signal.getsignal(signal.SIGINT)
    ours.listen()
    try:
        yield ours
    except Exception:  # an error that Ctrl-C caused is raised as Ctrl-C
        ours.check()
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is ours:
            signal.signal(signal.SIGINT, before)


def _started(partitions: int, folder: Path, java: str) -> SparkSession:
    for name in _OTHER_SPARK:
        if name != "SPARK_HOME" or not is_own(os.environ.get(name, "")):
            os.environ.pop(name, None)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{partitions + _SPARE}]").appName("unskew-demo")
    for name, value in _settings(partitions, folder, java).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def is_own(home: str) -> bool:
    """Whether a SPARK_HOME is that of the installed PySpark, or made of links to it."""
    return (Path(home) / "bin").resolve() == (Path(pyspark.__file__).parent / "bin").resolve()


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
    """Processes started inside the block write stderr to the log; after the block this process has its own again."""
    sys.stderr.flush()
    stderr = os.dup(2)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(sink)


def _why(why: Exception, log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join([str(why).splitlines()[0], *lines[-_LAST_LINES:]])
