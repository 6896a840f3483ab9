"""Run a command that ends with its parent: `python tied.py [--deaf] COMMAND …`.

A process that is killed outright cannot end its children; the kernel can: this sets SIGTERM as the
signal of the parent's death and becomes the command. `--deaf` also ignores SIGUSR1 and SIGUSR2,
which Slurm sends to every process of a step as a warning and which would end Ray's daemons.

Run by its path, with the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1


def tied(command: Sequence[str], *, deaf: bool = False) -> list[str]:
    """The command line that runs `command` tied to the process that starts it."""
    options = ["--deaf"] if deaf else []
    # -P: the names of this folder's modules hide no one else's.
    return [sys.executable, "-P", str(Path(__file__)), *options, str(os.getpid()), *command]


def main(arguments: Sequence[str]) -> None:
    """Become the command."""
    deaf = arguments[0] == "--deaf"
    parent, *command = arguments[1:] if deaf else arguments
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the line above
        sys.exit(128 + signal.SIGTERM)
    if deaf:
        for name in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(name, signal.SIG_IGN)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
