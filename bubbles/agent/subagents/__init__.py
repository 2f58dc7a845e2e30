"""Tasks in the background: turns of the model apart from a session's conversation (TOOL-05). ``contract`` first."""
