"""The assistant in a terminal: a conversation, or one message and its reply. ``contract`` first."""
