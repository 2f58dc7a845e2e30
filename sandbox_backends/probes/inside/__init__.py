"""What ``sandbox doctor`` runs INSIDE a place: Python 3.8 or newer, standard library only.

The place need not have this package: ``sandbox_backends.probes.bundle`` sends the text of its modules along.
"""
