"""`sentinel --help`, best of five fresh processes: at most 1 s, neither torch nor Ray loaded."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

BAR_SECONDS = 1.0
HEAVY = ("torch", "ray", "transformers")


def seconds() -> float:
    """Wall seconds of one fresh `sentinel --help`."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "jobs", "--help"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def loaded() -> list[str]:
    """Heavy libraries that the help text loads."""
    code = (
        "import sys; from jobs.__main__ import build_parser; build_parser().format_help();"
        f"print(*[h for h in {HEAVY!r} if h in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.split()


def main() -> int:
    """Print the line; with --check, 1 when it misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the bar is missed")
    parser.add_argument("--tiny", action="store_true", help="one process instead of five")
    args = parser.parse_args()
    heavy = loaded()
    best = min(seconds() for _ in range(1 if args.tiny else 5))
    print(f"help_seconds {best:.3f} s")
    if heavy:
        print(f"sentinel --help loads {', '.join(heavy)}", file=sys.stderr)
    return int(bool(heavy) or (args.check and best > BAR_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
