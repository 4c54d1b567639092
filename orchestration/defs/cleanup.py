"""Old runs are deleted each night."""

from orchestration.cleanup import cleanup_job

defs = cleanup_job()
