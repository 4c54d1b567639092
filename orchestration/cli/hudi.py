"""`calve hudi`: what commits to Hudi tables need, fetched before the first one does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson
from calve.orchestration.cli.output import say, say_json, working

if TYPE_CHECKING:
    from calve.sink_core.hudi.java.fetched import Fetched

app = typer.Typer(help="What commits to Hudi tables need.")


@app.callback()
def hudi() -> None:
    """What commits to Hudi tables need."""


@command(app, "prepare")
def prepare(
    row_changes: Annotated[
        bool, typer.Option("--row-changes", help="Fetch Spark 3.5 too, which tables with row changes need: 320 MB.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch Hudi's Java client, 80 MB, once per machine; without this the first commit does.

    Goes into the folder CALVE_JARS, by default ~/.cache/calve/jars.
    """
    from calve.sink_core.hudi.java.fetched import fetch_client, fetch_spark

    with working("looking") as status:
        fetched = [fetch(status.update) for fetch in (fetch_client, *([fetch_spark] if row_changes else []))]
    if as_json:
        say_json({"fetched": [_document(each) for each in fetched]})
    else:
        for each in fetched:
            say(each.text)


def _document(fetched: Fetched) -> dict[str, Any]:
    return {
        "name": fetched.name,
        "folder": str(fetched.folder),
        "bytes": fetched.size,
        "seconds": fetched.seconds,
    }
