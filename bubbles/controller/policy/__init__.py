"""The decision on a command: text and rules in, a verdict with its reasons out. Pure and synchronous."""
