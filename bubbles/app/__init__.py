"""Composition root: settings in, objects out. The only package that brings concrete classes together."""
