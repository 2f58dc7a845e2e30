"""Entry inside the place: connect, become hard to tamper with, serve. Exit status 3 says that the place will not do."""

import sys


def main(argv):  # type: (list[str]) -> int
    if sys.version_info < (3, 8):
        sys.stderr.write("Python %s is too old here: the sandbox needs 3.8 or newer.\n" % sys.version.split()[0])
        return 3
    sys.path.insert(0, __file__.rsplit("/", 2)[0])
    try:
        import os
        import signal
        import socket
        from importlib import import_module

        kernel = import_module("runner.kernel")
        serve = import_module("runner.serve")
    except ImportError as error:
        sys.stderr.write("Full Python is required in the sandbox and '%s' is missing: install python3.\n" % error.name)
        return 3
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    alone = kernel.LINUX and os.getpid() == 1
    # The kernel keeps from process 1 what its own namespace sends and nothing handles: no signal from inside ends it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL if alone else lambda *_: sys.exit(0))
    if kernel.LINUX:
        # Nothing of the same uid may look into this process or take its descriptors.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        if not alone:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if argv[0] == "--fd":
        connection = socket.socket(fileno=int(argv[1]))
        connection.set_inheritable(False)
    elif argv[0] == "--stdio":
        connection = import_module("runner.stdio").connect()
    else:
        connection = socket.socket(socket.AF_UNIX)
        with open(argv[3], "rb") as token:
            secret = token.read(64)
        connection.connect(argv[1])
        connection.sendall(secret)
    serve.Runner(connection).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
