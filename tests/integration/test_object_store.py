"""Listing a table's files on an object store (SeaweedFS), by the FileIOs that pyiceberg has for one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pyarrow as pa
import pytest
import s3fs
from pyiceberg.catalog.sql import SqlCatalog

from orchestration.broker import free_port
from sink_core.maintenance.orphans import list_files

WEED = Path(sys.executable).with_name("weed")
START_S = 60.0
BUCKET = "lake"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of an S3 server with an empty bucket."""
    directory = tmp_path_factory.mktemp("weed")
    # Each part listens on its port plus 10,000 too.
    ports = {part: free_port() % 20_000 + 20_000 for part in ("master", "volume", "filer", "s3")}
    assert len(set(ports.values())) == len(ports)
    who = {
        "name": "tests",
        "credentials": [{"accessKey": "k", "secretKey": "s"}],
        "actions": ["Admin", "Read", "Write"],
    }
    (directory / "s3.json").write_text(json.dumps({"identities": [who]}))
    flags = [f"-s3.config={directory / 's3.json'}", *(f"-{part}.port={port}" for part, port in ports.items())]
    with (directory / "weed.log").open("wb") as log:
        server = subprocess.Popen(
            [str(WEED), "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", *flags],
            stdout=log,
            stderr=log,
            cwd=directory,
        )
    try:
        address = f"http://127.0.0.1:{ports['s3']}"
        _make_bucket(address, directory / "weed.log")
        yield address
    finally:
        server.kill()
        server.wait()


def _make_bucket(address: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            s3fs.S3FileSystem(key="k", secret="s", endpoint_url=address, skip_instance_cache=True).mkdir(BUCKET)
        except OSError:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.5)
        else:
            return


@pytest.mark.parametrize("io", ["pyarrow.PyArrowFileIO", "fsspec.FsspecFileIO"])
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_every_file_is_listed_as_the_table_spells_it(endpoint: str, tmp_path: Path, io: str, scheme: str) -> None:
    catalog = SqlCatalog(
        "lake",
        **{
            "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
            "warehouse": f"{scheme}://{BUCKET}/{tmp_path.name}",
            "s3.endpoint": endpoint,
            "s3.access-key-id": "k",
            "s3.secret-access-key": "s",
            "s3.region": "us-east-1",
            "py-io-impl": f"pyiceberg.io.{io}",
        },
    )
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", rows.schema)
    before_ms = time.time() * 1000 - 60_000
    table.append(rows)
    neighbour = catalog.create_table("db.t_2", rows.schema)
    neighbour.append(rows)
    files = {file.path: file for file in list_files(catalog.load_table("db.t"))}
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    named = {table.metadata_location, snapshot.manifest_list}
    for manifest in snapshot.manifests(table.io):
        named.add(manifest.manifest_path)
        named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    assert named <= files.keys()
    assert all("/t_2/" not in path for path in files)
    assert all(file.size > 0 and before_ms < file.modified_ms < before_ms + 120_000 for file in files.values())
    catalog.close()
