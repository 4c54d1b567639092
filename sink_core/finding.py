"""A finding: a stored state that contradicts the world. It stops the pipeline and names the command that answers it.

What there may be to find is the table of `findings.py`; this module says what a row of it is made of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from calve.sink_core.codes import Explanation
from calve.sink_core.errors import FindingError

Part = Literal["binding", "control topic", "source topics", "remote topics", "positions", "tables"]


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer to a finding. What the ledger lacks must come back: its rows are what everything is proven from, and
    not in Kafka. So some answers are only for it, and others not.
    """

    name: str
    does: str
    tables: Literal["all", "ledger", "not the ledger"] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingKind(Explanation):
    """A row of the table of findings: `part` is what contradicts the log, `seen_by` what is compared.

    `hint` stands in the message of one without choices, `sql` is what may help, in Spark.
    """

    name: str
    part: Part
    seen_by: str
    choices: tuple[Choice, ...] = ()
    hint: str = ""
    sql: str = ""

    def of(self, subject: str, *, stored: str, found: str, only: tuple[str, ...] = ()) -> Finding:
        """What was found of `subject`; `only` names the choices that there are as things stand."""
        return Finding(self, subject, stored, found, self.names("not the ledger", only))

    def has(self, choice: str) -> bool:
        return any(choice == each.name for each in self.choices)

    def names(self, tables: Literal["ledger", "not the ledger"], only: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The choices for the ledger, or for what else may be the subject."""
        names = tuple(choice.name for choice in self.choices if choice.tables in ("all", tables))
        return tuple(name for name in names if not only or name in only)


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A part of a proof that could not be made, and why."""

    subject: str
    why: str


PROVEN, VIOLATED, NOTHING = "proven", "violated", "nothing-to-prove"
"""How a proof ends; nothing is to be proven of a pipeline that has not run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Both values, and the choices `calve resolve` offers for it."""

    kind: FindingKind
    subject: str
    stored: str
    found: str
    choices: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.kind.name

    def of_the_ledger(self) -> Finding:
        """The same with the choices that there are for the ledger."""
        return replace(self, choices=self.kind.names("ledger"))

    def error(self, pipeline_file: str = "FILE") -> FindingError:
        answer = f"calve resolve {pipeline_file} {self.name} --subject {self.subject} --choose {'|'.join(self.choices)}"
        return FindingError(
            self.name,
            self.subject,
            stored=self.stored,
            found=self.found,
            hint=answer if self.choices else self.kind.hint,
            choices=self.choices,
            code=self.kind.code,
        )
