"""What the proofs of kinds with slots say; a kind adds what it knows besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from calve.sink_core.finding import NOTHING, PROVEN, VIOLATED, NotChecked
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.report import BAD, WARNING, Line, Shown, long_table, number, verdict_line


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProof:
    """What is known of one partition of a topic that is written, and of the `records` that it got. `faults` say what is
    wrong.
    """

    at: TopicPartition
    records: int
    faults: tuple[str, ...] = ()

    @property
    def known(self) -> Mapping[str, int]:
        """What the log alone says, as people call it."""
        return {"records": self.records}

    @property
    def counted(self) -> Mapping[str, int]:
        """What a deep proof has counted besides."""
        raise NotImplementedError


Part = TypeVar("Part", bound=PartitionProof, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Generic[Part]):
    """`faults` are those of no single partition; `deep` says whether records were read again. `not_checked` bounds what
    is proven: of that it says nothing. There is nothing to prove unless it `ran`.
    """

    partitions: tuple[Part, ...]
    faults: tuple[str, ...]
    deep: bool
    not_checked: tuple[NotChecked, ...] = ()
    ran: bool = True

    @property
    def verdict(self) -> str:
        if not self.ran:
            return NOTHING
        return VIOLATED if self.every_fault else PROVEN

    @property
    def proven(self) -> bool:
        return self.verdict == PROVEN

    @property
    def every_fault(self) -> list[str]:
        """Those of partitions with their names."""
        return [*self.faults, *(f"{each.at}: {fault}" for each in self.partitions for fault in each.faults)]

    @property
    def notes(self) -> Sequence[str]:
        """What is to be known besides."""
        return ()

    @property
    def how(self) -> str:
        """By what it was proven."""
        raise NotImplementedError

    @property
    def total(self) -> Mapping[str, int]:
        """What there is in all, as people call it."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        verdict = {"proven": self.proven, "verdict": self.verdict, "deep": self.deep, "faults": self.faults}
        parts = [
            {"topic": each.at.topic, "partition": each.at.partition, "faults": each.faults}
            | {_key(name): number for name, number in {**each.known, **each.counted}.items()}
            for each in self.partitions
        ]
        total = {_key(name): number for name, number in self.total.items()}
        not_checked = [asdict(each) for each in self.not_checked]
        return {**verdict, "not_checked": not_checked, **total, "partitions": parts}

    def lines(self) -> Iterator[Shown]:
        yield from (Line(fault, BAD) for fault in self.every_fault)
        yield from (Line(note, WARNING) for note in self.notes)
        first = self.partitions[0] if self.partitions else None
        columns = ["topic", "partition", *self._numbers(first)] if first is not None else ["topic", "partition"]
        yield from long_table("", columns, self.partitions, self._cells)
        yield from (Line(f"not checked: {part.subject}: {part.why}", WARNING) for part in self.not_checked)
        yield Line(", ".join(f"{number:,} {name}" for name, number in self.total.items()))
        yield verdict_line(self.verdict, f"proven {self.how}")

    def _numbers(self, part: PartitionProof) -> Mapping[str, int]:
        return {**part.known, **(part.counted if self.deep else {})}

    def _cells(self, part: PartitionProof) -> list[str]:
        return [part.at.topic, str(part.at.partition), *map(number, self._numbers(part).values())]


def _key(name: str) -> str:
    return name.replace(" ", "_")
