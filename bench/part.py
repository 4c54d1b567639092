"""A part of `make bench`: what it measures, and how it is run, alone or after others."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.figure import Figure, Found, document, table
from bench.measure import ROOT
from bench.progress import say
from calve.orchestration.local import broker

DIRECTORY = ROOT / ".bench"
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A running broker, and an empty folder that is gone afterwards."""

    kafka: broker.Broker
    scratch: Path

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap


@dataclass(frozen=True, slots=True)
class Step:
    """What is measured at once: one that fails takes no other's figures with it."""

    name: str
    run: Callable[[], Iterable[Figure]]


@dataclass(frozen=True, slots=True)
class Part:
    """`options` adds those of its own, which default to what `make bench` takes, and `steps` measures by them.

    `smoke` are options by which all is done, and nothing worth reading comes of it. With `keeps_topics` the broker is
    the one in `.bench/broker`, which is there the next time; otherwise one whose topics go with the part.
    """

    name: str
    what: str
    options: Callable[[argparse.ArgumentParser], None]
    steps: Callable[[Place, argparse.Namespace], Generator[Step]]
    smoke: str
    keeps_topics: bool = False


def measure(part: Part, options: argparse.Namespace) -> Found:
    """All steps of the part, whatever becomes of each. `options` are its own, with those of `common`."""
    found, began = Found(part.name), time.monotonic()
    with (
        _noted(found, "set-up"),
        _place(part, options.directory) as place,
        closing(part.steps(place, options)) as steps,
    ):
        for step in steps:
            say(f"{part.name}: {step.name}")
            with _noted(found, step.name):
                for figure in step.run():
                    found.figures.append(figure)
    found.wall_s = time.monotonic() - began
    return found


def alone(part: Part, arguments: Sequence[str] | None = None) -> int:
    """The command of one part; its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{part.name.replace('-', '_')}", description=part.what)
    common(parser)
    part.options(parser)
    options = parser.parse_args(arguments)
    return show([measure(part, options)], options)


def common(parser: argparse.ArgumentParser) -> None:
    """The options of every command."""
    parser.add_argument("--json", action="store_true", help="a JSON document instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if an aim is missed, too")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, metavar="DIR", help="for all files (.bench)")


def show(found: Sequence[Found], options: argparse.Namespace) -> int:
    """Print what was found; the exit code: 1 if a step failed, and with `--strict` if an aim was missed."""
    if options.json:
        print(json.dumps({"machine": _machine(), "parts": document(found)}, indent=2))
    else:
        took = ", ".join(f"{part.part} {part.wall_s / 60:.1f} min" for part in found)
        print(f"\n{_machine()}; {took}\n\n{table(found)}")
    failed = any(part.errors for part in found)
    return int(failed or (options.strict and any(part.missed for part in found)))


@contextmanager
def _noted(found: Found, step: str) -> Generator[None]:
    """An error is written down, and what comes after goes on."""
    try:
        yield
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the figures of other steps count
        traceback.print_exc()
        found.errors[step] = f"{type(error).__name__}: {error}"[:_SHOWN_CHARACTERS]


@contextmanager
def _place(part: Part, directory: Path) -> Generator[Place]:
    scratch = directory.absolute() / part.name
    kafka = scratch.with_name("broker") if part.keeps_topics else scratch / "broker"
    broker.stop(kafka)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield Place(broker.start(kafka), scratch)
    finally:
        broker.stop(kafka)
        shutil.rmtree(scratch, ignore_errors=True)


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB, Python {platform.python_version()}"


def _processor() -> str:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return models[0].partition(": ")[2] if models else platform.machine()
