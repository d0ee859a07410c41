"""``jobledger``, and ``python -m jobledger``."""

from __future__ import annotations

import io
import signal
import sys


def main() -> None:
    """Runs the command line."""
    # Until a command runs, Ctrl-C ends the program without the traceback of whatever is being imported.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from jobledger.cli import program  # noqa: PLC0415 - imported under it

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's encoding lacks is shown escaped; it must not end a stream of events.
            stream.reconfigure(errors="backslashreplace")
    program.app(prog_name="jobledger")


if __name__ == "__main__":
    main()
