"""The program that runs inside every place: commands and files, many at once, over one framed byte stream.

Standard library only, Python 3.8 or newer, Linux and macOS. The directory is shown read-only in the place as
``runner`` and started there by ``python3 -I -S -B runner/start.py --fd N`` or ``--unix PATH --token-file PATH``. In a
hard sandbox it is process 1 of its pid namespace: it reaps whatever is orphaned, and everything ends with it. It ends
as soon as its connection does.

``wire`` frames and limits · ``kernel`` prctl, seccomp, openat2 · ``files`` confined access · ``processes`` start and
end whole trees · ``serve`` the loop · ``bridge`` the inner end of the egress proxy · ``start`` the entry.

``link.py`` is the other end and uses the same ``wire``; it trusts nothing that comes from here.
"""
