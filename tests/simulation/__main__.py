"""Run histories for a while; with `--seed N` one of them, shortened, and say all that happened in it."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.campaign import MIXTURES, run_for, run_seeds, shorten
from tests.simulation.rules import CASES


def main() -> int:
    """0 if no promise was broken."""
    options = _options().parse_args()
    if options.seed is None:
        totals = run_for(options.seconds, first=options.first, visits=options.visits)
        print(totals)
        return int(bool(totals.violations))
    chosen = {"mixture": options.mixture, "off": options.off}
    if not run_seeds([options.seed], **chosen).violations:
        print(f"seed {options.seed}: no promise was broken")
        return 0
    actions, result = shorten(options.seed, **chosen)
    print("\n".join(str(action) for action in actions))
    print("\n".join(result.trace))
    print(f"seed {options.seed}: {result.violation}")
    return 1


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, metavar="S", help="how long histories run (180)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed (0)")
    parser.add_argument(
        "--visits",
        type=int,
        default=0,
        metavar="N",
        help="go on for up to three times as long until histories have been everywhere N times (0)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="run one history, and shorten it if it breaks a promise")
    parser.add_argument("--mixture", choices=MIXTURES, help="processes of the history (default: drawn)")
    parser.add_argument("--off", choices=tuple(CASES), metavar="RULE", help="with a rule off, or with a known bug")
    return parser


if __name__ == "__main__":
    sys.exit(main())
