"""How the tests run Java: many short lives on few cores.

``python -m tests.jvm`` (``make test`` calls it) makes two things beside the venv's own files:

- a ``SPARK_HOME`` whose jars are one (``spark-home``). Spark's compiler of generated code asks for many classes that
  are not there, and each such question goes through every jar of the class path: 280 cost a fifth of Java's time.
- an archive of the classes that a small Spark job loads (class data sharing). With it a Spark starts and does three
  small jobs in 11 s and not in 19; the optimising compiler, which no test lives long enough to gain from, would make
  that 22. Java itself sees whether the archive fits its version and its jars, and goes on without it where it does not.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from zipfile import ZipFile, ZipInfo

__all__ = ["OPTIONS", "use"]

_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_HOME = Path(sys.prefix) / "spark-home"
_SERVICES = "META-INF/services/"
_MANIFEST = "Manifest-Version: 1.0\nMulti-Release: true\n\n"
# Hadoop starts a process for each file that it makes on a local disk; forking into it directly is the cheaper way.
_SHORT = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -Djdk.lang.Process.launchMechanism=VFORK"
)
_LONGEST = 120.0
OPTIONS = "JDK_JAVA_OPTIONS"  # read by every java from 9 on


def use() -> None:
    """For every Java that is started from here on, unless somebody has said otherwise."""
    shared = f' -Xlog:disable -XX:SharedArchiveFile="{_ARCHIVE}"' if _ARCHIVE.exists() else ""
    os.environ.setdefault(OPTIONS, _SHORT + shared)
    if _HOME.exists():
        os.environ.setdefault("SPARK_HOME", str(_HOME))


def main() -> None:
    """Make the home anew, and the archive of the last Java to end: Spark's own."""
    from unskew.spark.frame.jvm import end_gateway

    make_home(_HOME)
    os.environ["SPARK_HOME"] = str(_HOME)
    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        made = Path(folder) / _ARCHIVE.name
        os.environ[OPTIONS] = f'{_SHORT} -Xlog:disable -XX:ArchiveClassesAtExit="{made}"'
        os.environ["PYSPARK_PYTHON"] = sys.executable
        _work(Path(folder))
        end_gateway(_LONGEST)  # with its end Java writes the archive
        made.replace(_ARCHIVE)


def make_home(home: Path) -> None:
    """PySpark's own folder again by links, but for its jars: those that agree on all that they hold are one."""
    import pyspark

    own = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        made = Path(folder) / home.name
        (made / "jars").mkdir(parents=True)
        for path in own.iterdir():
            if path.name != "jars":
                (made / path.name).symlink_to(path)
        for jar in merge_jars(sorted((own / "jars").glob("*.jar")), made / "jars" / "spark.jar"):
            (made / "jars" / jar.name).symlink_to(jar)
        shutil.rmtree(home, ignore_errors=True)
        made.replace(home)


def merge_jars(jars: list[Path], to: Path) -> list[Path]:
    """Write all of these into one, uncompressed. Returns those left out: they hold something else by the same name."""
    held: dict[str, int] = {}
    services: defaultdict[str, list[bytes]] = defaultdict(list)
    left = []
    with ZipFile(to, "w") as merged:
        for jar in jars:
            with ZipFile(jar) as one:
                files = [file for file in one.infolist() if _counts(file)]
                if any(held.get(file.filename, file.CRC) != file.CRC for file in files):
                    left.append(jar)
                    continue
                for file in files:
                    if file.filename not in held:
                        held[file.filename] = file.CRC
                        merged.writestr(file.filename, one.read(file))
                for name in one.namelist():
                    if name.startswith(_SERVICES) and not name.endswith("/"):
                        services[name].append(one.read(name))
        for name, texts in services.items():
            merged.writestr(name, b"\n".join(texts))
        merged.writestr("META-INF/MANIFEST.MF", _MANIFEST)
    return left


def _counts(file: ZipInfo) -> bool:
    """Whether a program asks for it, folders included: no manifest, signature or licence; services are merged."""
    name = file.filename
    about_the_jar = name.startswith("META-INF/") and (name.count("/") == 1 or name.startswith("META-INF/maven/"))
    return not (about_the_jar or name.startswith(_SERVICES) or name.rpartition("/")[2] == "module-info.class")


def _work(folder: Path) -> None:
    """Something of all that the tests do with Spark."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    rows = spark.range(1000).selectExpr("id", "cast(id % 7 as string) AS word", "xxhash64(id) AS hash")
    rows.repartition(3, "word").write.parquet(str(folder / "rows"))
    rows.write.json(str(folder / "json"))
    stream = spark.readStream.schema(rows.schema).parquet(str(folder / "rows"))
    query = stream.writeStream.foreachBatch(
        lambda df, _: df.repartitionById(2, F.lit(0)).groupBy("word").count().collect()
    )
    query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    joined = spark.read.json(str(folder / "json")).join(rows.select("id", "hash"), "id")
    joined.groupBy("word").agg(F.sum("id"), F.count("word")).orderBy("word").collect()
    rows.mapInArrow(lambda batches: batches, rows.schema).groupBy("word").applyInPandas(_same, rows.schema).collect()
    rows.rdd.map(len).count()
    spark.stop()


def _same(rows):  # type: ignore[no-untyped-def]  # pandas is not imported where it is not needed
    return rows


if __name__ == "__main__":
    main()
