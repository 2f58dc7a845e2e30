"""Asking a person: the card, who shows it, and what counts as an answer (APPR-01 to APPR-04). See ``contract``."""
