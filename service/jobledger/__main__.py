"""``jobledger``, and ``python -m jobledger``."""

from __future__ import annotations

import io
import os
import signal
import sys

LAST_STANDARD = 2
"""The file descriptor of stderr."""


def main() -> None:
    """Runs the command line."""
    # Until a command runs, Ctrl-C ends the program without the traceback of whatever is being imported.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from jobledger.cli import program  # noqa: PLC0415 - imported under it

    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's encoding lacks is shown escaped; it must not end a stream of events.
            stream.reconfigure(errors="backslashreplace")
    program.app(prog_name="jobledger")


def _open_what_is_closed() -> None:
    """What is written to a stdout or stderr that is closed (``>&-``) is wanted by nobody, and ends nothing.

    Left closed, its number would go to the next connection, and a stray line into that.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD:
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - os says so
    os.close(descriptor)
    # Python has None for what was closed when it started.
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


if __name__ == "__main__":
    main()
