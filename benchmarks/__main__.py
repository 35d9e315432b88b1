"""``python -m benchmarks [NAME ...] [--repeats N] [--threads N]``: every benchmark, or the ones named."""
import argparse
import sys

from .runner import in_clean_child

BENCHMARKS = ("overhead",)


def main() -> int:
    """Run each benchmark in a child of its own; 0 if every result was valid and every target met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}")
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark {name!r}: known are {', '.join(BENCHMARKS)}")
    status = 0
    for name in options.names or BENCHMARKS:
        status |= in_clean_child(f"benchmarks.{name}", ["--repeats", str(options.repeats)], options.threads)
    return status


if __name__ == "__main__":
    sys.exit(main())
