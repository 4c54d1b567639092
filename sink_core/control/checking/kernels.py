"""Whether records are read into columns here, and how fast the first time."""

from __future__ import annotations

from calve.sink_core import compiled
from calve.sink_core.control.checking.checklist import Check, Note
from calve.sink_core.kafka import librdkafka

NAME = "reading"
_PREPARE = "calve spark prepare"


def reading_check() -> Check:
    """The question how many records at a time are read on this machine."""
    return Check(NAME, reading)


def reading() -> str | Note:
    """Columns, or why not."""
    if why := librdkafka.lacks() or compiled.lacks():
        return Note(
            f"records are read one by one, at a third of the speed: {why}",
            hint="see that confluent-kafka and numba are installed as wheels, and CALVE_COMPILED can be written",
        )
    if all(map(compiled.is_kept, compiled.KERNELS)):
        return f"into columns, by kernels in {compiled.directory()}"
    return (
        f"into columns, once kernels are compiled: by `{_PREPARE}`, or in a task of "
        f"{compiled.WORTH_COMPILING:,} records; until then one by one"
    )
