"""What ``sandbox doctor`` runs: a list of probes, tried for real inside each backend (SBX-09, SEC-02).

``catalog`` is the list; ``inside`` is what runs in the place; ``canaries`` is what is planted around it; ``run`` puts
them together; ``report`` is what comes out.
"""
