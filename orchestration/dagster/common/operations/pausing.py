"""Pause and resume, as `calve pause` and `calve resume` do it: every host obeys."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.names import PAUSE, RESUME
from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.sink_core.config.effective import Pipeline

if TYPE_CHECKING:
    from calve.sink_core.control.plane import AnyPlane


class PauseConfig(dg.Config):
    """Why, and what to wait for."""

    reason: str = Field(default="paused in Dagster", description="Shown wherever the pause holds something up.")
    wait: bool = Field(default=False, description="End only when no batch is in progress on any host.")
    timeout_s: float = Field(default=600.0, ge=0, description="Seconds that `wait` waits before the run fails.")
    give_up: bool = Field(
        default=False,
        description="After `timeout_s`, give up the batches still in progress instead of failing: no process can "
        "publish them any more, and their records are read again after the resume.",
    )


def pause(pipeline: Pipeline) -> "Operation[AnyPlane, PauseConfig]":
    """Stops planning and committing on all hosts."""

    def work(at: "Work[AnyPlane]", config: PauseConfig) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.control import pausing

        yield from ()
        made = pausing.pause(at.plane, at.by, config.reason)
        at.say(str(made.paused) if made.written else f"paused already since {pausing.told(made.paused)}")
        given_up: tuple[str, ...] = ()
        if config.wait:
            given_up = pausing.wait_until_idle(
                at.plane, made, config.timeout_s, giving_up=config.give_up, on_progress=at.say
            )
            at.say("no batch is in progress")
        paused = {"paused since": pausing.since(made.paused), "by": made.paused.by, "reason": made.paused.reason}
        return {**paused, **({"given up": ", ".join(given_up) or "no batch"} if config.wait else {})}

    return Operation(
        PAUSE,
        f"Stops {pipeline.name} on all hosts until it is resumed: nothing is planned or committed. A batch in progress "
        "is still finished.",
        PauseConfig,
        {"reason": PauseConfig.model_fields["reason"].default, "wait": False},
        work,
    )


def resume(pipeline: Pipeline) -> "Operation[AnyPlane, dg.Config]":
    """Ends a pause, or has a stopped pipeline tried again."""

    def work(at: "Work[AnyPlane]", _config: dg.Config) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.control import pausing

        yield from ()
        was = pausing.resume(at.plane, at.by)
        did = f"resumed; it was paused since {pausing.told(was)}" if was else "it was not paused"
        at.say(did if was else f"{did}; if it was stopped, it is tried again")
        return {"did": did}

    return Operation(
        RESUME,
        f"Ends a pause of {pipeline.name}; after a stop, says that its cause is corrected, so that runs start again.",
        None,
        {},
        work,
    )
