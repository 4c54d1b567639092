"""A real object store: SeaweedFS with its S3 interface and one bucket, that can be stopped and started again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import s3fs
from botocore.exceptions import BotoCoreError, ClientError

from tests import support

WEED = Path(sys.executable).with_name("weed")
START_S = 60.0
BUCKET = "lake"
KEY, SECRET = "k", "s"
PARTS = ("master", "volume", "filer", "s3")


def _ports() -> dict[str, int]:
    # Each part listens on its port plus 10,000 too.
    ports = {part: support.steady_port(further=10_000) for part in PARTS}
    return ports if len(set(ports.values())) == len(ports) else _ports()


@dataclass
class ObjectStore:
    """The store in `directory`; it keeps its ports and objects when started again.

    `others` are users beside the one who may do all, by their key, with what each may do.
    """

    directory: Path
    others: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    ports: dict[str, int] = field(default_factory=_ports)
    _server: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3']}"

    @property
    def properties(self) -> dict[str, str]:
        """What pyiceberg needs to reach it."""
        return self.properties_of(KEY)

    def properties_of(self, user: str) -> dict[str, str]:
        """The same for a user with this key."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": user,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }

    def start(self) -> None:
        """Returns when the bucket is there, and every object that was in it can be read again."""
        users = {KEY: ["Admin", "Read", "Write"], **self.others}
        identities = [
            {"name": key, "credentials": [{"accessKey": key, "secretKey": SECRET}], "actions": [*actions]}
            for key, actions in users.items()
        ]
        (self.directory / "s3.json").write_text(json.dumps({"identities": identities}))
        flags = [f"-s3.config={self.directory / 's3.json'}", *(f"-{part}.port={self.ports[part]}" for part in PARTS)]
        with (self.directory / "weed.log").open("ab") as log:
            self._server = subprocess.Popen(
                [str(WEED), "server", f"-dir={self.directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", *flags],
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        try:
            self._await_bucket()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """SIGKILL; nothing if it doesn't run."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def _await_bucket(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                store = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=self.endpoint, skip_instance_cache=True)
                if not store.exists(BUCKET):
                    store.mkdir(BUCKET)
                # Started again, it answers before its volumes do.
                for path in store.find(BUCKET):
                    store.cat_file(path)
            except (OSError, BotoCoreError, ClientError):
                assert time.monotonic() < deadline, (self.directory / "weed.log").read_text(errors="replace")[-2000:]
                time.sleep(0.5)
            else:
                return
