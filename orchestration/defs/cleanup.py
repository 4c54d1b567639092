"""Old runs are deleted each night."""

from calve import cleanup_job

defs = cleanup_job()
