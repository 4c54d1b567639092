"""`calve check` and `calve config`: what to set, by what each part answers, and what is set.

What a kind does for `check` is called with the pipeline and `spark`, and returns a `Checkup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind
from calve.orchestration.cli.output import say, say_json, working
from calve.sink_core.codes import Code
from calve.sink_core.java import find_java

if TYPE_CHECKING:
    from calve.sink_core.config.connections import SparkSettings
    from calve.sink_core.config.effective import Pipeline
    from calve.sink_core.control.checking.checklist import Check, Outcome
    from calve.sink_core.control.checking.executors import Probe

MOST_TASKS = 64
"""Executors asked at most."""

_STYLES = {"ok": "green", "note": "yellow", "failed": "red", "unreachable": "red", "skipped": "dim"}


@dataclass(frozen=True, slots=True)
class Checkup:
    """The answers to a kind's checks, each after what it is given was told which comes next; and the lines for
    `kafka-acls` that grant what the pipeline needs.
    """

    outcomes: Callable[[Callable[[Check], None]], Iterator[Outcome]]
    acl_lines: Callable[[], list[str]]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    command(app, "check")(check)
    command(app, "config")(config)


def check(
    file: PipelineFile,
    connections: ConnectionsFile = None,
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark too, and ask its executors.")] = False,
    acls: Annotated[bool, typer.Option("--acls", help="Print the ACLs the pipeline needs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Connect to each part and print ok, or the setting to change. Writes nothing but a file that it deletes.

    Exit code 0: all is well; 1: a check failed; 2: the files are wrong; 3: a part did not answer.
    """
    from calve.sink_core.control.checking.checklist import exit_code

    pipeline, body = of_kind("check", file, connections)
    made: Checkup = body(pipeline, spark=spark)
    outcomes: list[Outcome] = []
    with working("checking") as status:
        for outcome in made.outcomes(lambda check: status.update(f"checking {check.name}")):
            outcomes.append(outcome)
            if not as_json:
                _show(outcome)
    lines = made.acl_lines() if acls or any(outcome.unauthorized for outcome in outcomes) else []
    if as_json:
        say_json({"ok": exit_code(outcomes) == 0, "checks": [_document(o) for o in outcomes], "acls": lines})
    for line in lines if not as_json else []:
        say(line)
    raise typer.Exit(exit_code(outcomes))


def last_checks(pipeline: Pipeline, probe: Callable[[], Probe], *, spark: bool) -> tuple[Check, Check]:
    """What is encrypted, and the engine that a run would have.

    With `spark` Spark is started, and its executors asked by `probe`, which asks more.
    """
    from calve.sink_core.control.checking.checklist import Check
    from calve.sink_core.control.checking.encryption import encryption

    encrypted = Check("encryption", lambda: encryption(pipeline))
    if spark:
        return encrypted, Check("spark", lambda: _ask_spark(pipeline.spark, probe()))
    return encrypted, Check("engine", lambda: engine_text(pipeline))


def engine_text(pipeline: Pipeline) -> str:
    """By which engine a run would write, and from where it would have it. Raises ConfigError if there is no Java."""
    from calve.spark_jobs import warm

    settings, short_cut = pipeline.spark, pipeline.config.batch.spark_from_records
    small = f"in-process for fewer than {short_cut:,} records, else " if short_cut else ""
    if settings.remote is not None:
        return f"{small}spark by Connect; --spark asks it"
    java = find_java()
    if (there := warm.ready(settings)) is not None:
        return (
            f"{small}spark {there.application_id} on {there.master}, which is up{f': {there.ui}' if there.ui else ''}"
        )
    return f"{small}spark on {settings.master}, started by each run with {java}; `calve spark start` keeps one up"


def _ask_spark(settings: SparkSettings, probe: Probe) -> str:
    from pyspark.errors import PySparkException

    from calve.sink_core.control.checking.executors import summary
    from calve.sink_core.errors import ConfigError
    from calve.spark_jobs.tasks import SparkTasks

    with SparkTasks(settings) as engine:
        try:
            return summary(engine.run(probe, min(engine.parallelism(), MOST_TASKS)))
        except PySparkException as error:
            # Spark's message is a traceback of the executor's Python; its last line says what was missing.
            said = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            message = f"no task of ours runs on the executors: {said[-1].strip()}"
            raise ConfigError(
                message, hint="install Calve with its dependencies where executors run", code=Code.EXECUTORS
            ) from None


def _show(outcome: Outcome) -> None:
    code = f" [{outcome.code}]" if outcome.code else ""
    say(f"{outcome.status:<12} {outcome.check}: {outcome.message}{code}", style=_STYLES[outcome.status])
    if outcome.hint:
        say(f"{'':<12} → {outcome.hint}")


def _document(outcome: Outcome) -> dict[str, str]:
    return {
        "check": outcome.check,
        "status": outcome.status,
        "message": outcome.message,
        "hint": outcome.hint,
        "code": outcome.code,
    }


def config(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Show both files as they take effect: defaults filled in, secrets hidden, derived names added."""
    import yaml

    from calve.sink_core.config.load import load

    described = load(file, connections).describe()
    if as_json:
        say_json(described)
    else:
        say(yaml.safe_dump(described, sort_keys=False, allow_unicode=True).rstrip())
