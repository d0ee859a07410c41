"""``jobledger``, and ``python -m jobledger``."""

from __future__ import annotations

import io
import sys

from jobledger.cli import program


def main() -> None:
    """Runs the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's encoding lacks is shown escaped; it must not end a stream of events.
            stream.reconfigure(errors="backslashreplace")
    program.app(prog_name="jobledger")


if __name__ == "__main__":
    main()
