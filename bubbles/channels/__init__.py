"""Where messages come from and go to. A channel moves messages and decides nothing. ``contract`` first."""
