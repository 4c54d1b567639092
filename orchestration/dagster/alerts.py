"""A hook for run failures: what a pipeline doesn't get over by itself is handed to a function of yours, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile

import dagster as dg
from dagster import DagsterInstance

from calve.orchestration.compat import DagsterRunReaction
from calve.orchestration.dagster.common.names import (
    ALONE_TAG,
    ERROR_TAG,
    PIPELINE_TAG,
    REMEDY_TAG,
    STAGE_TAG,
    TERMINAL_TAG,
    WHY_TAG,
)
from calve.orchestration.dagster.common.runs import ENDED, UNEXPLAINED

INTERVAL_S = 14
"""Dagster's loop takes 5 s: with 14, every third of its rounds."""

IN_A_ROW = 3
"""A failure that may pass by itself is posted when it comes for the third time."""

TRIES = 8
"""Ticks, two minutes in all, in which an alert is tried that `post` refuses; the next one's turn comes then."""

_LOOKED_BACK = 200


@dataclass(frozen=True, slots=True)
class Alert:
    """What failed. `error` is its kind, or the finding's name; `at` the end of the run, ISO 8601 in UTC.

    `remedy` is the command or setting to go on with, "" if none is known. `folded` are the earlier failed runs of the
    pipeline's stage with the same error since its last success. `alone` names the tables that failed where all else was
    done, "" where the whole run failed. `unposted` counts alerts before this one that `post` refused for good.
    """

    pipeline: str
    stage: str
    error: str
    message: str
    remedy: str
    run_id: str
    job_name: str
    at: str
    folded: int
    alone: str = ""
    unposted: int = 0


class NotPosted(dg.DagsterError):
    """`post` raised. One of Dagster's own errors, because of what Dagster does with any other: see `alert_sensor`."""


def alert_sensor(post: Callable[[Alert], None], *, name: str = "calve_alerts") -> dg.SensorDefinition:
    """Hands to `post` what pipelines of this code location don't get over by themselves.

    An error that only a person can end is posted at its first run, any other at its third; neither again before a run
    of the same stage succeeds. If `post` raises, the tick fails, and the next begins with the same run. After `TRIES`
    of them the alert is logged in place of posted, and the next that is posted counts it as `unposted`: one that
    can't be posted keeps back no other. If the daemon dies right after a post, it is posted twice.
    """
    tries, unposted = Counter[str](), list[str]()

    @dg.run_failure_sensor(
        name=name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Posts what a Calve pipeline doesn't get over by itself.",
    )
    def alerts(context: dg.RunFailureSensorContext) -> DagsterRunReaction | None:
        run_id = context.dagster_run.run_id
        record = context.instance.get_run_record_by_id(run_id)
        alert = alert_of(context.instance, record) if record else None
        if alert is None:
            return None
        try:
            post(replace(alert, unposted=len(unposted)))
        except Exception as error:
            tries[run_id] += 1
            if tries[run_id] < TRIES:
                # For an error of any other kind Dagster fails the tick and moves its cursor on, past the alert.
                raise NotPosted(f"run {run_id}: the alert about {alert.error} could not be posted") from error
            unposted.append(run_id)
            context.log.error(f"run {run_id}: {TRIES} times not posted, and not tried again: {alert}")
        else:
            unposted.clear()
            context.log.info(f"run {run_id}: posted {alert.error}")
        del tries[run_id]
        # Returned rather than left out: it ends the tick, so that the cursor is saved before another post may raise.
        return DagsterRunReaction(context.dagster_run, run_status=dg.DagsterRunStatus.FAILURE)

    return alerts


def folded_if_due(error: str, *, terminal: bool, earlier: Iterable[str | None]) -> int | None:
    """How many runs this alert stands for besides its own; None if it isn't to be posted.

    `earlier` are the stage's runs that came before, newest first: each one's kind of error, None for a success.
    """
    folded = sum(kind == error for kind in takewhile(lambda kind: kind is not None, earlier))
    return folded if folded == (0 if terminal else IN_A_ROW - 1) else None


def alert_of(instance: DagsterInstance, record: dg.RunRecord) -> Alert | None:
    """What is to be posted of a failed run; None if nothing is."""
    run = record.dagster_run
    if PIPELINE_TAG not in run.tags:
        return None
    terminal = run.tags.get(TERMINAL_TAG) == "true"
    folded = folded_if_due(_kind(run), terminal=terminal, earlier=_earlier(instance, run))
    if folded is None:
        return None
    ended_s = record.end_time or record.update_timestamp.timestamp()
    return Alert(
        pipeline=run.tags[PIPELINE_TAG],
        stage=run.tags.get(STAGE_TAG, ""),
        error=run.tags.get(ERROR_TAG, UNEXPLAINED),
        message=run.tags.get(WHY_TAG, "the run ended without saying why; its log may"),
        remedy=run.tags.get(REMEDY_TAG, ""),
        run_id=run.run_id,
        job_name=run.job_name,
        at=datetime.fromtimestamp(ended_s, UTC).isoformat(timespec="seconds"),
        folded=folded,
        alone=run.tags.get(ALONE_TAG, ""),
    )


def _earlier(instance: DagsterInstance, run: dg.DagsterRun) -> list[str | None]:
    tags = {key: run.tags[key] for key in (PIPELINE_TAG, STAGE_TAG) if key in run.tags}
    wanted = dg.RunsFilter(tags=tags, statuses=ENDED)
    before = instance.get_runs(wanted, cursor=run.run_id, limit=_LOOKED_BACK)
    return [None if ended.is_success else _kind(ended) for ended in before]


def _kind(run: dg.DagsterRun) -> str:
    """What makes failures the same: the kind of error, and the tables that it stopped alone."""
    return "\n".join((run.tags.get(ERROR_TAG, UNEXPLAINED), run.tags.get(ALONE_TAG, "")))
