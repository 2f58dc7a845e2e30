"""Places where commands run and files are read and written. Open ``contract.py`` first."""
