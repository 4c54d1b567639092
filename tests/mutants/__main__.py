"""Change the protocol's code in one place at a time, in a copy, and show which test notices.

A mutant that no test notices marks what the tests do not prove. One that only breaks itself (a NameError, a time-out)
proves nothing either. Without NAMEs all are tried. 0: each was killed by a test, or has a written reason to survive;
1: one was not; 2: the tests fail without any, or a mutant does not fit the code as it is.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.campaign import NotProven, try_all
from tests.mutants.copies import misplaced
from tests.mutants.everything import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.verdicts import document, table

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT, mutants: Sequence[Mutant] = MUTANTS) -> int:
    """The exit code."""
    options = _options().parse_args(arguments)
    known = {mutant.name: mutant for mutant in mutants}
    unknown = [f"there is no mutant {name}" for name in options.names if name not in known]
    chosen = [known[name] for name in options.names if name in known] or [*mutants]
    if wrong := unknown or misplaced(root, chosen):
        _say("\n".join(wrong))
        return 2
    try:
        outcomes = try_all(root, chosen, jobs=options.jobs, say=_say if options.json else _show)
    except NotProven as error:
        _say(f"these fail without any mutant:\n{error}")
        return 2
    except KeyboardInterrupt:
        _say("interrupted; nothing was left behind")
        return 130
    print(json.dumps(document(outcomes), indent=2) if options.json else f"\n{table(outcomes)}")
    return int(not all(outcome.right for outcome in outcomes))


def _show(line: str) -> None:
    print(line, flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to try (all)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (2)")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON, progress to stderr")
    return parser


if __name__ == "__main__":
    # Whoever is asked to end still ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
