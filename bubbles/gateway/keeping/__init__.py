"""How the ledger lies on the disk."""
