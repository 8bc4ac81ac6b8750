"""``python -m tests.fuzz``: see `tests.fuzz`."""

import argparse
import json
import sys
from pathlib import Path

from tests.fuzz.campaign import Campaign, Worker
from tests.fuzz.worker import serve

parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--minutes", type=float, default=60)
parser.add_argument("--number", type=int, help="how many new inputs at most")
parser.add_argument("--target", help="only this format, such as 'lionagi store'")
parser.add_argument("--jobs", type=int, default=2)
parser.add_argument("--results", type=Path, help="a file of answers to go on with")
parser.add_argument("--only", type=int, help="run this input again and print what it came to")
parser.add_argument("--keep", type=Path, help="a folder that keeps the files of --only")
parser.add_argument("--plant", help=argparse.SUPPRESS)
parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)


def main() -> int:
    """Exit code 1 where a defect is known."""
    asked = parser.parse_args()
    if asked.serve is not None:
        serve(asked.seed, asked.serve, asked.keep, asked.plant)
        return 0
    if asked.only is not None:
        worker = Worker(asked.seed, asked.keep and asked.keep.resolve(), asked.plant)
        answer = worker.run(asked.only)
        print(json.dumps(answer, indent=1))
        print((worker.folder / "stderr").read_text(errors="replace"), file=sys.stderr)
        worker.end()
        return int(answer["verdict"] == "defect")
    results = asked.results or Path(".fuzz") / f"seed-{asked.seed}.jsonl"
    campaign = Campaign(asked.seed, results, asked.jobs, asked.target, asked.plant)
    campaign.run(asked.minutes, asked.number)
    print(campaign.summary())
    return int(bool(campaign.defects))


if __name__ == "__main__":
    sys.exit(main())
