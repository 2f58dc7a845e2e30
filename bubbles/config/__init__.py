"""Settings: what a person may write (``schema``) and how it is found and read (``load``) and changed (``edit``).

Nothing is imported here: pydantic costs a tenth of a second that ``bubbles --help`` does not owe.
"""
