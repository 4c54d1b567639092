"""The data versions of what moves on all the time, as tags of materializations. Pure."""

from __future__ import annotations

import dagster as dg

from calve.orchestration.compat import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    INPUT_DATA_VERSION_TAG_PREFIX,
    INPUT_EVENT_POINTER_TAG_PREFIX,
    NULL_EVENT_POINTER,
)

STREAM = "stream"
"""The data version of all batches. Dagster would otherwise call what follows them out of sync until each batch has
something for it; how far that is behind say its checks."""


def of_version(version: str = STREAM) -> dict[str, str]:
    """Of a materialization with a data version."""
    return {DATA_VERSION_TAG: version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}


def following(batches: dg.AssetKey, version: str = STREAM) -> dict[str, str]:
    """Of a materialization that follows from batches and is no op's output: of one Dagster would write these itself."""
    return {
        **of_version(version),
        CODE_VERSION_TAG: STREAM,
        f"{INPUT_DATA_VERSION_TAG_PREFIX}/{batches.to_user_string()}": STREAM,
        f"{INPUT_EVENT_POINTER_TAG_PREFIX}/{batches.to_user_string()}": NULL_EVENT_POINTER,
    }
