"""``jobledger``, and ``python -m jobledger``."""

from __future__ import annotations

from jobledger.cli import program


def main() -> None:
    """Runs the command line."""
    program.app(prog_name="jobledger")


if __name__ == "__main__":
    main()
