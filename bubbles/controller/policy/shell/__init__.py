"""Shell text to the commands in it."""

from bubbles.controller.policy.shell.reader import read, read_argv

__all__ = ["read", "read_argv"]
