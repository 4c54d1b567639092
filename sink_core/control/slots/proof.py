"""What the proofs of kinds with slots say; a kind adds what it knows besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from calve.sink_core.finding import PROVEN, VIOLATED, NotChecked
from calve.sink_core.offsets import TopicPartition


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
    is proven: of that it says nothing.
    """

    partitions: tuple[Part, ...]
    faults: tuple[str, ...]
    deep: bool
    not_checked: tuple[NotChecked, ...] = ()

    @property
    def verdict(self) -> str:
        return VIOLATED if self.every_fault else PROVEN

    @property
    def proven(self) -> bool:
        return self.verdict == PROVEN

    @property
    def every_fault(self) -> list[str]:
        """Those of partitions with their names."""
        return [*self.faults, *(f"{each.at}: {fault}" for each in self.partitions for fault in each.faults)]
