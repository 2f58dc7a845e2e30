"""Model providers: one contract (``contract``), one registry, one retry contract, several ways on the wire."""
