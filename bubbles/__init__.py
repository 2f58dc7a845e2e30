"""Bubbles: a personal assistant whose every action on the machine runs in a sandbox."""

__version__ = "0.1.0"
