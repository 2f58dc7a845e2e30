"""The gate: everything between "the model wants to run this" and "it ran"."""
