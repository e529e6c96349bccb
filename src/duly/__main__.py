"""`python -m duly`: the same as the command `duly`."""

from __future__ import annotations

from duly.cli import main

if __name__ == "__main__":
    main()
