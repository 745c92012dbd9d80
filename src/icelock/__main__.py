"""``python -m icelock``: the command line (``icelock.cli.main``)."""

from __future__ import annotations

from icelock.cli.main import main

if __name__ == "__main__":
    main(prog_name="icelock")
