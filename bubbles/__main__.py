"""Where ``bubbles`` and ``python -m bubbles`` start."""

from __future__ import annotations

import gc
import sys

GARBAGE = (50_000, 20, 20)
"""Thresholds of the garbage collector. What is imported stays: to look through it again and again, and once more at
the end, took a fifth of the time of ``bubbles agent -m``."""


def main() -> int:
    gc.set_threshold(*GARBAGE)
    try:
        from bubbles.cli import main as run  # not before it is needed: ``import bubbles.__main__`` stays free

        return run()
    except KeyboardInterrupt:  # while that was imported
        return 130
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
