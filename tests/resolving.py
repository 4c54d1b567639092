"""`calve resolve` in this process, and the proof that what it left is right."""

from __future__ import annotations

import json
import re
from typing import Any

from typer.testing import CliRunner, Result

# The command imports it when it runs; failpoints are taken over in what is imported by then.
import calve.sink_core.sink.resolve.resolve  # noqa: F401
from calve.orchestration.cli.main import app
from calve.sink_core.sink.verify.proof import verify
from tests import damage
from tests.codes import says
from tests.pipelines import Flow


def resolve(flow: Flow, finding: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["resolve", str(flow.pipeline.path), finding, *options])


def resolved(flow: Flow, finding: str, choice: str, *options: str) -> dict[str, Any]:
    done = resolve(flow, finding, "--choose", choice, *options, "--yes", "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(flow: Flow, finding: str, choice: str, code: str, *values: object) -> None:
    """The choice is refused as wrong input, with this code and these values, and nothing is changed."""
    before = damage.world(flow)
    done = resolve(flow, finding, "--choose", choice, "--yes")
    assert done.exit_code == 2
    says(done.stderr, code, finding, *values)
    assert damage.world(flow) == before


def numbers(line: str, of: str = "") -> list[int]:
    """The numbers of a line that names what it is `of`, but for those in that name."""
    assert of in line
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", line.replace(of, ""))]


def run_and_prove(flow: Flow) -> dict[str, int]:
    """A run to the end, and the proof; returns what the proof counted."""
    assert flow.run().ended == "caught up"
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.proven, report.violations
    return dict(report.facts)
