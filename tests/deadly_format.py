"""A format of records of which one ends the process that decodes it, as a fault in a library does: `deadly` pairs.

Run as a module it is the process in which tasks try records first, with this format among those it knows.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from pyiceberg.schema import Schema

from calve.sink_core.config.formats import FORMATS, FormatRow
from calve.sink_core.config.reading import ValueSettings
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import Decoded
from calve.sink_core.records.decode.format import Format, Steps
from calve.sink_core.sink.write import deadly
from tests.toy_format import Pairs, PairsDecoder

DEADLY = FormatRow("deadly", "tests.deadly_format:deadly_format")
KILLS = b"id=kills"


def deadly_format(_value: ValueSettings) -> Format:
    return _Deadly()


class _Deadly(Pairs):
    def decoder(self, schema: Schema, _steps: Steps = (), _names: Names = EXACT) -> PairsDecoder:
        return _Decoder(schema)


class _Decoder(PairsDecoder):
    def decode(self, values: Sequence[bytes]) -> Decoded:
        if any(value.startswith(KILLS) for value in values):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().decode(values)


def know() -> None:
    """Have this process know the format, and try records in one that knows it."""
    FORMATS[DEADLY.name] = DEADLY
    deadly.__dict__["_MODULE"] = "tests.deadly_format"


def run(pipeline: str, path: str = "") -> None:
    """`calve run`, where the format is known. Spark's processes look for modules in `path` too."""
    from calve.orchestration.cli.main import app

    know()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, *sys.path]))
    app(["run", pipeline], prog_name="calve")


if __name__ == "__main__":
    know()
    deadly.main()
