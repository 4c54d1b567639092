"""Copies of the work tree, and a mutant in the place of what it changes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.mutant import Mutant


def copy_tree(root: Path, folder: Path) -> None:
    """All that git knows of the work tree as it is now, files that it does not track yet included."""
    listing = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    found = subprocess.run(listing, check=True, capture_output=True).stdout
    for name in map(os.fsdecode, filter(None, found.split(b"\0"))):
        source, target = root / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def changed(mutant: Mutant, text: str) -> str:
    """The file's text with the mutant in it. Raises ValueError if what it changes is not there once."""
    if (times := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.name}: its `old` occurs {times} times in {mutant.path}, expected once")
    return text.replace(mutant.old, mutant.new)


def misplaced(root: Path, mutants: Iterable[Mutant]) -> list[str]:
    """What is wrong with mutants that can't be put in their place."""
    wrong: list[str] = []
    for mutant in mutants:
        try:
            changed(mutant, (root / mutant.path).read_text())
        except (ValueError, OSError) as error:
            wrong.append(str(error))
    return wrong


@contextmanager
def in_place(mutant: Mutant, folder: Path) -> Generator[None]:
    """The mutant is in the copy in `folder`; afterwards the file is as it was, its time of change included.

    So what Python has compiled of it stays of use, and nothing is taken for it that was compiled of the mutant.
    """
    path = folder / mutant.path
    text, times = path.read_text(), path.stat()
    path.write_text(changed(mutant, text))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
