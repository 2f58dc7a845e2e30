"""The first run at a terminal: what is there, what is offered, one real request, the strongest sandbox (CLI-01).

``contract.py`` first, then ``conversation.py``. Nothing is written here: ``onboard`` writes what was agreed on, once.
"""
