"""The pinned Java archives of the embedded broker, of Spark and of Hudi, fetched once from Maven Central to local disk.

`CALVE_JARS` (default `~/.cache/calve/jars`) holds one folder per set of coordinates, named after their digest: it
appears complete by a rename and never changes afterwards, so a killed download or another version of Calve cannot
disturb a process that is running from it. A mirror of Maven Central is set in jgo's own configuration file
(`[repositories]`, see its documentation).

What came is held against `jars.lock`, which has the SHA-256 of each file of each set, those included that other jars
depend on; `sha256sum -c` reads it too. `python -m calve.sink_core.jars` fetches everything ahead of time; with `--lock`
it writes the lock anew, of what it fetches.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError, ConfigError, Unreachable
from calve.sink_core.locks import exclusive

if TYPE_CHECKING:
    from jgo.maven import Artifact, MavenContext

COORDINATES_FILE = "coordinates.txt"

LOCK = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True, slots=True)
class JarSet:
    """Maven coordinates `group:artifact:version` used together: `roots` with all they depend on, `extras` alone.

    `archives` are `group:artifact:version:classifier` of tar.gz files, whose content becomes that of the folder.
    """

    name: str
    roots: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()

    @property
    def coordinates(self) -> tuple[str, ...]:
        return self.roots + self.extras + self.archives

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256("\n".join(self.coordinates).encode()).hexdigest()[:8]
        return jars_dir() / f"{self.name}-{digest}"


KAFKA = JarSet(
    "kafka",
    roots=("org.apache.kafka:kafka_2.13:4.3.1",),
    # Kafka logs through SLF4J 1.7 and lacks only the binding to the Log4j it brings; keep its version equal to that. As
    # a root, its POM would pull kafka-clients down to 3.9.
    extras=("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",),
)
SPARK = JarSet(
    "spark",
    # Spark brings what these depend on, in versions of its own.
    extras=(
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.xerial:sqlite-jdbc:3.54.1.0",
        "org.postgresql:postgresql:42.7.14",
    ),
)

HUDI = JarSet(
    "hudi",
    # Hudi's Java client, and the bundle for what that depends on; Hadoop, Parquet and Avro are Spark's.
    extras=(
        "org.apache.hudi:hudi-java-client:1.2.0",
        "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
        "org.locationtech.jts:jts-core:1.20.0",
    ),
)


OWN = (KAFKA, SPARK, HUDI)
"""The sets that are in the lock."""


def jars_dir() -> Path:
    """The folder all sets live in: `CALVE_JARS`, else `~/.cache/calve/jars`."""
    configured = os.environ.get("CALVE_JARS")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".cache" / "calve" / "jars"


def kafka_jars() -> list[Path]:
    """The class path of the embedded broker. Fetches it if needed; raises Unreachable."""
    return resolve(KAFKA)


def spark_jars() -> list[Path]:
    """What Spark needs for Iceberg and its catalogs (`spark.jars`). Fetches it if needed; raises Unreachable."""
    return resolve(SPARK)


def resolve(jars: JarSet) -> list[Path]:
    """The archives of a set. Fetches them if needed; raises Unreachable."""
    fetched_once(jars.folder, partial(_fetch, jars))
    return sorted(jars.folder.glob("*.jar"))


def fetched_once(folder: Path, fetch: Callable[[Path], object]) -> None:
    """Have a folder below `jars_dir`. If it isn't there `fetch` fills it by another name; raises what that raises."""
    if folder.is_dir():
        return
    with exclusive(jars_dir() / f".{folder.name}.lock"):
        if folder.is_dir():
            return
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=jars_dir()) as scratch:
            complete = Path(scratch, "complete")
            complete.mkdir()
            fetch(complete)
            complete.rename(folder)


def _fetch(jars: JarSet, complete: Path) -> None:
    _download(jars, complete)
    require_locked(jars, complete)
    (complete / COORDINATES_FILE).write_text("\n".join(jars.coordinates) + "\n")


def _download(jars: JarSet, complete: Path) -> None:
    # jgo writes a download straight to its final place, so its repository is a throw-away one: a shared one would
    # keep the torso of a killed download and hand it out for good.
    repository = complete.with_name("repository")
    try:
        for artifact in _artifacts(jars, _maven(repository)):
            artifact.resolve().rename(complete / artifact.filename)
        for archive in _archives(jars, _maven(repository)):
            with tarfile.open(archive.resolve()) as content:
                content.extractall(complete, filter="data")
    except (OSError, RuntimeError, tarfile.TarError) as error:  # requests' errors are OSErrors
        raise Unreachable(
            f"the jars of {jars.name} could not be fetched from Maven Central: {error}",
            hint=f"open the way to Maven Central (HTTPS_PROXY, or a mirror in jgo's configuration file), or copy "
            f"{jars.folder} from a machine that has it",
            code=Code.MAVEN,
        ) from error
    _check_archives(complete)


def _maven(repository: Path) -> MavenContext:
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.maven import MavenContext

    remotes = {"central": MAVEN_CENTRAL_URL} | GlobalSettings.load().repositories
    return MavenContext(repo_cache=repository, remote_repos=remotes, timeout=30)


def _artifacts(jars: JarSet, maven: MavenContext) -> list[Artifact]:
    roots = [maven.create_dependency(coordinate) for coordinate in jars.roots]
    extras = [maven.create_dependency(coordinate) for coordinate in jars.extras]
    others = maven.resolver.resolve(roots)[1] if roots else []
    needed = [d for d in others if d.scope in ("compile", "runtime")]
    return [d.artifact for d in [*roots, *needed, *extras]]


def _archives(jars: JarSet, maven: MavenContext) -> Iterator[Artifact]:
    for coordinate in jars.archives:
        group, name, version, classifier = coordinate.split(":")
        yield maven.project(group, name).at_version(version).artifact(classifier, "tar.gz")


def _check_archives(folder: Path) -> None:
    broken = [path.name for path in folder.glob("*.jar") if not zipfile.is_zipfile(path)]
    if broken:
        raise Unreachable(
            f"Maven Central answered with something other than a jar for {', '.join(broken)}",
            hint="check the proxy or mirror on the way, then run `python -m calve.sink_core.jars`",
            code=Code.MAVEN,
        )


def require_locked(jars: JarSet, folder: Path) -> None:
    """Raise ConfigError for files that differ from those of the lock, are not there or not in it. A set that is not in
    the lock is not Calve's own.
    """
    lock = _locked(jars)
    if lock and (differs := sorted({name for name, _ in lock.items() ^ _digests(folder).items()})):
        raise ConfigError(
            f"what was fetched as the jars of {jars.name} is not what Calve was made with: {', '.join(differs)}",
            hint="nothing of it is used: see what the proxy, or the mirror in jgo's configuration file, answers with",
            code=Code.JARS_DIFFER,
        )


def _locked(jars: JarSet) -> dict[str, str]:
    """The SHA-256 of each file of a set by its name; {} for a set that is not in the lock."""
    lines = (line.split("  ", 1) for line in LOCK.read_text().splitlines())
    return {Path(path).name: digest for digest, path in lines if Path(path).parent.name == jars.folder.name}


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.jar"))}


def write_lock() -> None:
    """Fetch Calve's own sets into a folder that is new, and write the lock of them."""
    with tempfile.TemporaryDirectory(prefix="calve-jars-") as scratch:
        lines = list[str]()
        for jars in OWN:
            complete = Path(scratch, jars.folder.name, "complete")
            complete.mkdir(parents=True)
            _download(jars, complete)
            lines += [f"{digest}  {jars.folder.name}/{name}\n" for name, digest in _digests(complete).items()]
    LOCK.write_text("".join(lines))


def main() -> int:
    """Fetch every set and print a line for each. Returns the exit code."""
    try:
        if sys.argv[1:] == ["--lock"]:
            write_lock()
        for jars in OWN:
            print(f"jars: {jars.name}: {', '.join(jars.coordinates)}", flush=True)  # noqa: T201 (a command's output)
            print(f"jars: {jars.name}: {len(resolve(jars))} files in {jars.folder}", flush=True)  # noqa: T201
    except CalveError as error:
        print(f"jars: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
