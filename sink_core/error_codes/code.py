"""A code of an error: one kind of trouble that an operator can look up.

`CLV-` and four digits, of which the first is the area: 0 whatever has no closer code (one for each class of errors),
1 files, settings and options, 2 Kafka, 3 catalogs and tables, 4 records, 5 operating a pipeline, 6 the machine,
7 sources, 9 findings (`sink_core/findings.py`). A code is never given to another kind; one that is no longer raised is
left out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """What `calve explain` and the documents say. The texts are Markdown: a title, the cause, and what to do."""

    code: str
    title: str
    meaning: str
    remedy: str
