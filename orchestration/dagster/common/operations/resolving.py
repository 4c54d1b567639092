"""Answering a finding, as `calve resolve` does it."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.names import RESOLVE
from calve.orchestration.dagster.common.operations.job import Operation, P, Told, Work
from calve.sink_core.codes import Code
from calve.sink_core.config.effective import Pipeline

if TYPE_CHECKING:
    from calve.sink_core.control.answers import Answers, Offer


class ResolveConfig(dg.Config):
    """Which finding, and the answer to it. Without a `choice` nothing is changed."""

    finding: str = Field(default="", description="Its name, as the failed run has it. Empty: every finding there is.")
    subject: str = Field(default="", description="Its table or topic, if the finding stands for several.")
    choice: str = Field(
        default="", description="One of the finding's choices. Empty: show what each would do, and change nothing."
    )


def resolve(pipeline: Pipeline, answers_of: "Callable[[P], Answers[P]]") -> Operation[P, ResolveConfig]:
    """Shows what can be done about findings, and does what is chosen. `answers_of` knows the findings of a kind."""

    def work(at: Work[P], config: ResolveConfig) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.errors import ConfigError

        yield from ()
        answers, subject = answers_of(at.plane), config.subject or None
        if not config.choice:
            return _shown(at, answers.offers(config.finding or None, subject))
        if not config.finding:
            raise ConfigError(
                "choice: of which finding?", hint="set finding; a run without a choice lists them", code=Code.OPTION
            )
        prepared = answers.prepare(config.finding, subject, config.choice)
        for line in (prepared.found.message, f"{prepared.choice}:", *prepared.answer.would):
            at.say(line)
        done = answers.carry_out(prepared, at.by)
        for line in done:
            at.say(line)
        found = prepared.found
        said = {"finding": found.finding, "subject": found.subject, "stored": found.stored, "found": found.found}
        return {**said, "choice": prepared.choice, "done": "\n".join(done)}

    return Operation(
        RESOLVE,
        f"Answers a finding of {pipeline.name}. Without a choice it shows what each choice would do, and changes "
        "nothing.",
        ResolveConfig,
        {"finding": "", "choice": ""},
        work,
    )


def _shown(at: Work[Any], offered: "Sequence[Offer]") -> dict[str, Any]:
    if not offered:
        at.say("no finding: nothing is to be answered")
        return {"findings": 0}
    records: list[dg.TableRecord] = []
    for offer in offered:
        found = offer.found
        at.say(f"{found.message}\n{offer.choice}: {offer.would}")
        what = {"finding": found.finding, "subject": found.subject, "stored": found.stored, "found": found.found}
        records.append(dg.TableRecord({**what, "choice": offer.choice, "would": offer.would}))
    findings = len({(offer.found.finding, offer.found.subject) for offer in offered})
    return {"findings": findings, "choices": dg.MetadataValue.table(records)}
