"""Which files there are, at a path or at an address of fsspec."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import infer_compression

from calve.sink_core.codes import Code
from calve.sink_core.config.references import without_user_info
from calve.sink_core.errors import ConfigError

_MAGIC = re.compile(r"[*?[]")
_USER_INFO = re.compile(r"(?<=://)[^/]*@")
# As the file systems of fsspec call it, in the order in which it is looked for: what comes first is said more exactly.
_CHANGED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_TAGS = ("ETag", "etag")


@dataclass(frozen=True, slots=True)
class Found:
    """A file: its `name` below the folder that is read, its size in bytes, and the time of its last change in seconds
    since 1970; None for time, `etag` and `inode` where the file system has none.
    """

    name: str
    size: int
    mtime: float | None = None
    etag: str | None = None
    inode: int | None = None

    @property
    def shown(self) -> str:
        """Its name to people: bytes that are no UTF-8 as `\\xe9`."""
        return self.name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def since_ms(found: Found) -> int | None:
    """When it changed last."""
    return None if found.mtime is None else round(found.mtime * 1000)


class Address:
    """A folder, or a pattern of files, of any file system that fsspec knows.

    Names that begin with a dot or an underscore, of files and of folders within, are left out, as Spark and Hive do:
    so are called what is still written, and marks such as `_SUCCESS`. So are links that lead out of the folder, unless
    they are `followed`: who may put files there need not be one who may read what Calve may.
    """

    def __init__(
        self, url: str, options: Mapping[str, Any], *, compressed: bool = False, followed: bool = False
    ) -> None:
        """`compressed`: files may be. Raises ConfigError for a scheme whose package isn't there."""
        try:
            self._fs, path = cast(tuple[Any, str], url_to_fs(url, **options))
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"source.files.path: {error}", hint="install fsspec's package for it here", code=Code.NO_FILES_ADDRESS
            ) from error
        self._path, self._compressed = path.rstrip("/"), compressed
        self.shown = _shown(url) if "://" in url else str(self._fs.unstrip_protocol(path))
        """Without secrets, and the same on every host."""
        self._is_folder, self._followed = False, followed
        self.links: list[str] = []
        """Those that lead out of the folder, as of the last listing, by name."""

    def files(self) -> list[Found]:
        """Those that are there now, by name. Raises ConfigError for a folder of this host that is missing."""
        # Object stores would give what they listed before.
        self._fs.invalidate_cache()
        root, pattern = self._place()
        listed = cast(dict[str, dict[str, Any]], self._fs.glob(pattern, detail=True))
        wanted = root if _MAGIC.search(pattern) else pattern
        if not listed and isinstance(self._fs, LocalFileSystem) and not self._fs.exists(wanted):
            # An object store has no folders: what has no objects may get some.
            raise ConfigError(
                f"source.files.path: there is no {wanted}", hint="correct source.files.path", code=Code.NO_FILES_ADDRESS
            )
        found, self.links = list[Found](), []
        for path, listing in sorted(listed.items()):
            name = path[len(root) :].lstrip("/")
            if _is_hidden(name):
                continue
            info = self._fs.info(path) if listing.get("islink") else listing
            if info["type"] != "file":
                continue
            if not self._is_below(path, root):
                self.links.append(name)
                continue
            tag = next((str(info[key]) for key in _TAGS if info.get(key)), None)
            changed = next((info[key] for key in _CHANGED if info.get(key) is not None), None)
            found.append(Found(name, int(info["size"] or 0), _seconds(changed), tag, cast(int | None, info.get("ino"))))
        return found

    def others(self) -> list[str]:
        """Files as deep below the folder as the pattern goes that it does not meet, by name."""
        root, pattern = self._place()
        if not _MAGIC.search(pattern) or pattern == f"{root}/*":
            return []
        below = pattern[len(root) :].strip("/")
        depth = None if "**" in below else below.count("/") + 1
        met = {str(path) for path in self._fs.glob(pattern)}
        names = (path[len(root) :].lstrip("/") for path in sorted({*self._fs.find(root, maxdepth=depth)} - met))
        return [name for name in names if not _is_hidden(name)]

    def require_readable(self, found: Found) -> None:
        """Raise ConfigError for a file that can't be read whatever is in it."""
        if found.shown != found.name:
            raise ConfigError(
                f"{found.shown}: a name that is no UTF-8 can be no source partition",
                hint="give the file another name",
                code=Code.FILE_NAME,
            )
        if not self._compressed and (by := infer_compression(found.name)) is not None:
            raise ConfigError(
                f"{found.name} is compressed ({by}), and its lines have no positions that one could go on from",
                hint="have files that are not compressed, or a pattern in source.files.path that leaves these out",
                code=Code.FILE_COMPRESSED,
            )

    def open(self, name: str, *, ahead: int) -> IO[bytes]:
        """`ahead`: so many bytes are fetched at a time, where that is done over a network."""
        root, _ = self._place()
        path = f"{root}/{name}"
        if type(self._fs) is LocalFileSystem:
            return self._opened(path, root)
        return cast(IO[bytes], self._fs.open(path, "rb", block_size=ahead))

    def _opened(self, path: str, root: str) -> IO[bytes]:
        """A file of this host, which may be another one than was listed. Raises FileNotFoundError for none that is one
        of those to be read: to open a pipe would wait for whoever writes.
        """
        missing = FileNotFoundError(errno.ENOENT, "no file of the folder", path)
        if not self._is_below(path, root):
            raise missing
        try:
            descriptor = os.open(os.path.realpath(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise missing from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise missing
        return os.fdopen(descriptor, "rb")

    def _is_below(self, path: str, root: str) -> bool:
        """Whether a path leads to below the folder, by links too; or may lead anywhere."""
        if self._followed or not isinstance(self._fs, LocalFileSystem):
            return True
        return Path(path).resolve().is_relative_to(Path(root or "/").resolve())

    def _place(self) -> tuple[str, str]:
        """The folder that names begin below, and the pattern."""
        if magic := _MAGIC.search(self._path):
            return self._path[: magic.start()].rpartition("/")[0], self._path
        # A folder stays one; what is none yet may become one.
        self._is_folder = self._is_folder or bool(self._fs.isdir(self._path))
        return (self._path, f"{self._path}/*") if self._is_folder else (self._path.rpartition("/")[0], self._path)


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _shown(url: str) -> str:
    # What stands behind "?" is a pattern, but where it may be a token.
    return without_user_info(url) if url.startswith(("http:", "https:")) else _USER_INFO.sub("", url)


def _seconds(changed: object) -> float | None:
    if isinstance(changed, str):
        try:
            changed = datetime.fromisoformat(changed)
        except ValueError:
            return None
    if isinstance(changed, datetime):
        return changed.timestamp()
    return float(changed) if isinstance(changed, int | float) else None
