"""`make bench`: what sinks to Iceberg are to reach, in one table. `python -m bench.run --help` lists the options; with
`--all` looks at many batches, memory, mirrors, sources and sinks to Hudi are measured as well.

Parts come one after the other, each with a broker and an empty folder. One that fails is a row of the table with its
error; the others go on. A part's own sizes are options of its own command, such as `python -m bench.freshness --help`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import coordinator, freshness, hudi, looks, memory, mirror, scale_out, source, starts, throughput
from bench.part import Part, common, measure, show

PARTS = {
    part.name: part
    for part in (
        throughput.PART,
        starts.PART,
        freshness.PART,
        coordinator.PART,
        scale_out.PART,
        looks.PART,
        memory.PART,
        hudi.PART,
        mirror.PART,
        source.PART,
    )
}
OTHERS = (looks.PART.name, memory.PART.name, hudi.PART.name, mirror.PART.name, source.PART.name)
"""Not sinks to Iceberg, many batches, which take minutes to publish, and the memory that a test bounds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a part failed, or with `--strict` if an aim is missed."""
    options = _options().parse_args(arguments)
    usual = PARTS if options.all else set(PARTS).difference(OTHERS)
    chosen = [part for name, part in PARTS.items() if name in (options.only or usual)]
    return show([measure(part, sizes(part, options)) for part in chosen], options)


def sizes(part: Part, options: argparse.Namespace) -> argparse.Namespace:
    """The part's defaults, or its least, beside what was given."""
    parser = argparse.ArgumentParser()
    common(parser)
    part.options(parser)
    sizes = parser.parse_args(part.smoke.split() if options.smoke else [])
    sizes.directory = options.directory
    return sizes


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="All that is measured, in one table.")
    common(parser)
    parser.add_argument("--all", action="store_true", help=f"{', '.join(OTHERS)} as well")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--smoke", action="store_true", help="the smallest sizes: does all work? Figures mean nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
