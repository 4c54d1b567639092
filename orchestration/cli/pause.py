"""`calve pause` and `calve resume`: two events on the control topic, which every host obeys."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic, sleep, time_ns
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.boundary import command
from orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile
from orchestration.cli.output import error_document, say, say_json, working
from orchestration.cli.user import user
from sink_core.errors import CalveError, ConfigError

if TYPE_CHECKING:
    from sink_core.control.events import Paused
    from sink_core.session import Session

POLL_S = 1.0


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    command(app, "pause")(pause)
    command(app, "resume")(resume)


def pause(
    file: PipelineFile,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Shown wherever it holds something up.")] = (
        "paused by hand"
    ),
    wait: Annotated[bool, typer.Option("--wait", help="Until no batch is under way.")] = False,
    timeout: Annotated[float, typer.Option(min=0, metavar="S", help="How long --wait waits.")] = 600,
    giving_up: Annotated[
        bool, typer.Option("--give-up", help="After --wait, give up what is still under way; nothing is lost by it.")
    ] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Stop planning and committing on all hosts until `calve resume`. A batch under way is still finished.

    Exit code 1: with --wait, batches are still listed as under way after the time-out; the pause is in effect anyway.
    With --give-up no run can publish these any more, dead or alive: after the resume their records are read again.
    """
    from sink_core.config.load import load
    from sink_core.control.events import Paused
    from sink_core.session import Session

    if giving_up and not wait:
        raise ConfigError("--give-up goes with --wait", hint="add --wait, and --timeout 0 to give up at once")
    pipeline = load(file, connections)
    with working("connecting") as status, Session.open(pipeline) as session:
        bound = session.bind()
        already = session.log.state.paused
        paused = already or Paused(pipeline_id=bound.pipeline_id, by=user(), reason=reason)
        offset = -1 if already else session.log.append(paused).offset
        given_up: tuple[str, ...] = ()
        document = {"pipeline": pipeline.name, "paused": _document(paused), "written": not already}
        if not as_json:
            say(f"paused already since {_told(paused)}" if already else str(paused))
        if wait:
            try:
                given_up = _wait(session, offset, timeout, giving_up, status.update)
            except CalveError as error:
                if not as_json:
                    raise
                say_json(document | error_document(error))
                raise typer.Exit(error.exit_code) from None
    if as_json:
        say_json(document | ({"given_up": given_up} if wait else {}))
    elif wait:
        say(f"no batch is under way; given up: {', '.join(given_up)}" if given_up else "no batch is under way")


def resume(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """End a pause; or, after a stop, say that its cause is corrected, so that runs are started again."""
    from sink_core.config.load import load
    from sink_core.control.events import Resumed
    from sink_core.session import Session

    pipeline = load(file, connections)
    with working("connecting"), Session.open(pipeline) as session:
        bound = session.bind()
        was = session.log.state.paused
        resumed = Resumed(pipeline_id=bound.pipeline_id, by=user())
        session.log.append(resumed)
    if as_json:
        say_json({"pipeline": pipeline.name, "resumed_by": resumed.by, "was_paused": _document(was) if was else None})
    elif was:
        say(f"resumed; it was paused since {_told(was)}")
    else:
        say("it was not paused; if it was stopped, it is tried again")


def _wait(
    session: Session, offset: int, timeout_s: float, giving_up: bool, tell: Callable[[str], None]
) -> tuple[str, ...]:
    """Until no batch is under way in a log that has been read past the pause at `offset`; the ids of those given up.

    Up to there the log may be hidden behind an open transaction, and with it a batch that was planned before the pause.
    Raises CalveError if somebody resumes, and at the time-out unless `giving_up`.
    """
    from sink_core.maintenance.give_up import give_up
    from sink_core.status import in_flight

    deadline = monotonic() + timeout_s
    while True:
        state = session.log.refresh()
        seen, batches = state.next_offset > offset, list(in_flight(state, time_ns() // 1_000_000))
        if seen and state.paused is None:
            by = state.resumed.by if state.resumed else "somebody"
            raise CalveError(f"resumed by {by} during the wait", hint="calve pause FILE --wait pauses again")
        if seen and not batches:
            return ()
        listed = ", ".join(f"{batch.batch_id} for {batch.age_s:,.0f} s" for batch in batches)
        listed = listed or "not known yet, a transaction hides the end of the control topic"
        if monotonic() >= deadline:
            if giving_up:
                return give_up(session).batch_ids
            raise CalveError(
                f"batches under way after a wait of {timeout_s:g} s: {listed}",
                hint="the pause is in effect anyway; `calve pause FILE --wait --give-up` ends what dead runs have left",
            )
        tell(f"waiting for batches under way: {listed}")
        sleep(POLL_S)


def _document(paused: Paused) -> dict[str, Any]:
    since = datetime.fromtimestamp(paused.written_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {"since": since, "by": paused.by, "reason": paused.reason}


def _told(paused: Paused) -> str:
    document = _document(paused)
    return f"{document['since']} by {document['by']}: {document['reason']}"
