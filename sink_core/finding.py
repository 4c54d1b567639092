"""A finding: a stored state that contradicts the world. It stops the pipeline and names the command that answers it."""

from __future__ import annotations

from dataclasses import dataclass

from calve.sink_core.errors import FindingError


@dataclass(frozen=True, slots=True)
class Finding:
    """Both values, and the choices `calve resolve` offers for it (DESIGN section 5)."""

    name: str
    subject: str
    stored: str
    found: str
    choices: tuple[str, ...]

    def error(self, pipeline_file: str = "FILE") -> FindingError:
        choices = "|".join(self.choices)
        return FindingError(
            self.name,
            self.subject,
            stored=self.stored,
            found=self.found,
            hint=f"calve resolve {pipeline_file} {self.name} --subject {self.subject} --choose {choices}",
            choices=self.choices,
        )
