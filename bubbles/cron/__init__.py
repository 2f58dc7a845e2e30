"""Jobs: messages that come by the clock. ``contract`` first."""
