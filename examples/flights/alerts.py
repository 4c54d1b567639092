"""Alerts to a webhook. Copy this file into your project's `defs` folder; Dagster finds the sensor there.

The webhook's URL comes from the environment variable CALVE_ALERT_URL and gets JSON as Slack and its like take it.
Without the variable the line goes to the log.
"""

from __future__ import annotations

import html
import json
import logging
import os
import urllib.request
from dataclasses import asdict
from http.client import InvalidURL
from urllib.error import HTTPError

from calve import Alert, alert_sensor, check_alert_sensor

URL_VARIABLE = "CALVE_ALERT_URL"
TIMEOUT_S = 10.0


def post(alert: Alert) -> None:
    """Send it. Raises OSError if the webhook doesn't take it, ValueError for what is no URL."""
    # A variable that came out of a file often ends with a line break.
    if not (url := os.environ.get(URL_VARIABLE, "").strip()):
        logging.getLogger(__name__).warning("%s is not set; alert: %s", URL_VARIABLE, text(alert))
        return
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{URL_VARIABLE} is not an http(s) URL")
    # `<` and `&` mean something to Slack: `<!channel>` would call everybody.
    body = {"text": html.escape(text(alert), quote=False), **asdict(alert)}
    try:
        request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
            url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()  # noqa: S310
    except HTTPError as error:
        with error:
            raise OSError(f"the webhook answered {error.code} {error.reason}") from None
    except InvalidURL:
        # Whoever has the URL may post, and these messages hold parts of it.
        raise ValueError(f"{URL_VARIABLE} is not a usable URL") from None


def text(alert: Alert) -> str:
    """As a person reads it."""
    lines = [f"{alert.pipeline} {alert.stage}: {alert.error}", alert.message]
    if alert.remedy:
        lines.append(f"→ {alert.remedy}")
    times = f", after {alert.folded} more with the same error" if alert.folded else ""
    return "\n".join([*lines, f"run {alert.run_id[:8]} of {alert.job_name}, {alert.at}{times}"])


alerts = alert_sensor(post)
red_checks = check_alert_sensor(post)
