"""Where ``bubbles`` and ``python -m bubbles`` start."""

from __future__ import annotations

import sys


def main() -> int:
    from bubbles.cli import main as run  # not before it is needed: ``import bubbles.__main__`` stays free

    return run()


if __name__ == "__main__":
    sys.exit(main())
