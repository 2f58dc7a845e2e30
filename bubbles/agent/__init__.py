"""One turn: the model, its tools, and the history between them. It knows no channel. ``contract`` first."""
