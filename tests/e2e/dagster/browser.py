"""A headless Chromium for the pages of Dagster's UI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal, get_args

from playwright.sync_api import BrowserContext, expect, sync_playwright

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = get_args(Theme)
VARIABLE = "CALVE_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1500, 900
TIMEOUT_S = 90.0
"""For whatever a page is to show: machines that run tests are slow at times."""


def executable() -> str:
    """The browser of `CALVE_BROWSER`, else the first one on the PATH. Fails with what to install."""
    asked = os.environ.get(VARIABLE)
    found = shutil.which(asked) if asked else next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    raise AssertionError(
        f"{VARIABLE}={asked} is no program"
        if asked
        else f"no browser on the PATH ({', '.join(NAMES)}): run `make browser`, or set {VARIABLE} to one"
    )


@contextmanager
def browser(theme: Theme = "light") -> Generator[BrowserContext]:
    """Pages made in it share one window size and wait `TIMEOUT_S` for what they are asked for.

    Dagster's UI takes the theme of the system, which is `theme` here.
    """
    # Chromium refuses its sandbox to root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    program = executable()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=arguments)
        context = started.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, timezone_id="UTC", color_scheme=theme
        )
        context.set_default_timeout(TIMEOUT_S * 1000)
        expect.set_options(timeout=TIMEOUT_S * 1000)
        try:
            yield context
        finally:
            started.close()


def group_path(location: str, group: str) -> str:
    """Where the UI shows the lineage of an asset group."""
    return f"/locations/__repository__@{location}/asset-groups/{group}/lineage"


def job_path(location: str, job: str, tab: str) -> str:
    """Where it shows a job: `playground` is its Launchpad, `partitions` where backfills are launched."""
    return f"/locations/__repository__@{location}/jobs/{job}/{tab}"


def sensor_path(location: str, sensor: str) -> str:
    """Where it shows a sensor and its ticks."""
    return f"/locations/__repository__@{location}/sensors/{sensor}"
