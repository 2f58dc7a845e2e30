"""Sessions: a directory each, with a history that is only appended to and survives a crash. ``contract`` first."""
