"""What the model can do. ``contract`` first; ``registry`` holds the tools; each tool is a file or a class in one."""
