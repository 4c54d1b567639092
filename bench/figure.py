"""What measurements come to: figures, whether they are what they are to be, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure is to be at least, or with `at_most` at most; with `of_ratio` it is its ratio that is to be so."""

    limit: float
    at_most: bool = False
    of_ratio: bool = False

    def holds(self, number: float) -> bool:
        return number <= self.limit if self.at_most else number >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:,g}{' ×' if self.of_ratio else ''}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. `name` is unique in its part, `peer` names the row of the same part that the ratio is of; `more` is what
    was measured beside it, by unit.
    """

    name: str
    what: str
    value: float
    unit: str
    aim: Aim | None = None
    peer: str = ""
    more: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass
class Found:
    """What a part came to: its figures, and the error of each step of it that failed, by the step's name."""

    part: str
    figures: list[Figure] = field(default_factory=list[Figure])
    errors: dict[str, str] = field(default_factory=dict[str, str])
    wall_s: float = 0.0

    def ratio(self, figure: Figure) -> float | None:
        """To the figure's peer; None where it has none, or that was not measured."""
        peers = [each for each in self.figures if each.name == figure.peer]
        return figure.value / peers[0].value if peers and peers[0].value else None

    def reached(self, figure: Figure) -> bool | None:
        """Whether the aim is; None where there is none, or no ratio to hold it to."""
        if figure.aim is None:
            return None
        number = self.ratio(figure) if figure.aim.of_ratio else figure.value
        return None if number is None else figure.aim.holds(number)

    @property
    def missed(self) -> list[Figure]:
        return [figure for figure in self.figures if self.reached(figure) is False]


def table(found: Sequence[Found]) -> str:
    """For people, in Markdown: a row for each figure and for each step that failed."""
    heads = ("part", "what", "figure", "ratio", "aim", "reached", "beside it")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---|---|---|---|"]
    return "\n".join(lines + [f"| {' | '.join(cells)} |" for part in found for cells in _rows(part)])


def document(found: Sequence[Found]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {
            "part": part.part,
            "wall_s": round(part.wall_s, 1),
            "errors": part.errors,
            "figures": [
                {
                    "name": figure.name,
                    "what": figure.what,
                    "value": figure.value,
                    "unit": figure.unit,
                    "peer": figure.peer or None,
                    "ratio": part.ratio(figure),
                    "aim": str(figure.aim) if figure.aim else None,
                    "reached": part.reached(figure),
                    "more": dict(figure.more),
                }
                for figure in part.figures
            ],
        }
        for part in found
    ]


def _rows(part: Found) -> Iterator[Sequence[str]]:
    for figure in part.figures:
        ratio = part.ratio(figure)
        yield (
            part.part,
            f"{figure.name}: {figure.what}",
            f"{_number(figure.value)} {figure.unit}",
            f"{ratio:.2f} × {figure.peer}" if ratio is not None else "",
            str(figure.aim or ""),
            {True: "yes", False: "**no**", None: ""}[part.reached(figure)],
            ", ".join(f"{_number(value)} {unit}" for unit, value in figure.more.items()),
        )
    for step, error in part.errors.items():
        # A bar or a line's end would end the cell.
        shown = error.replace("|", "\\|").replace("\n", " ")
        yield part.part, step, "**failed**", "", "", "", shown


def _number(value: float) -> str:
    """Three digits, or all before the point."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
