"""``bubblewrap``: a place of its own out of namespaces, for root and for an ordinary user (SBX-04).

``backend`` open and clean up · ``layout`` what is to be seen inside, as bwrap's options · ``system`` the minimal
read-only system · ``trial`` whether bwrap works here, and if not, why.
"""

from sandbox_backends.bubblewrap.backend import BubblewrapBackend

__all__ = ["BubblewrapBackend"]
