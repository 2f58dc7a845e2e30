"""The filter is installed for real, in a child of its own, and asked what it refuses."""

from __future__ import annotations

import errno
import functools
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_backends.errors import UnsupportedSpecError
from sandbox_backends.seccomp import build_filter

MACHINE = platform.machine()

INSTALL = """
import ctypes, errno, json, os, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

def install(code):
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    program = Program(len(code) // 8, code)
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()

def call(number, *args):
    ctypes.set_errno(0)
    libc.syscall.restype = ctypes.c_long
    done = libc.syscall(ctypes.c_long(number), *[a if isinstance(a, bytes) else ctypes.c_ulong(a) for a in args])
    return 0 if done >= 0 else ctypes.get_errno()

for code in sys.argv[1].split(","):
    install(bytes.fromhex(code))
"""

REFUSED_X86_64 = """
    setns=308 mount=165 umount2=166 pivot_root=155 chroot=161 open_tree=428 move_mount=429 fsopen=430 fsconfig=431
    fsmount=432 fspick=433 mount_setattr=442 keyctl=250 add_key=248 request_key=249 bpf=321 perf_event_open=298
    userfaultfd=323 io_uring_setup=425 io_uring_enter=426 io_uring_register=427 open_by_handle_at=304 init_module=175
    finit_module=313 delete_module=176 kexec_load=246 kexec_file_load=320 reboot=169 swapon=167 swapoff=168 acct=163
    quotactl=179 quotactl_fd=443 settimeofday=164 clock_settime=227 adjtimex=159 clock_adjtime=305 syslog=103 iopl=172
    ioperm=173 sethostname=170 setdomainname=171 lookup_dcookie=212 ustat=136
    """
X86_64 = {name: int(number) for name, number in (pair.split("=") for pair in REFUSED_X86_64.split())}

needs_x86_64 = pytest.mark.skipif(MACHINE != "x86_64", reason="the call numbers in this test are those of x86_64")
linux = pytest.mark.needs("linux")


def run_under_filter(
    code: str, *arguments: str, refuse_setid: bool = False, layers: int = 1, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    filters = ",".join([build_filter(MACHINE, refuse_setid=refuse_setid).hex()] * layers)
    return subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", INSTALL + code, filters, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=15,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def ask(code: str, *arguments: str, refuse_setid: bool = False, layers: int = 1, cwd: Path | None = None) -> object:
    """What ``code`` leaves in ``answer``."""
    text = code + "\nprint(json.dumps(answer))"
    done = run_under_filter(text, *arguments, refuse_setid=refuse_setid, layers=layers, cwd=cwd)
    assert done.returncode == 0, done.stderr
    answer: object = json.loads(done.stdout)
    return answer


def simulate(machine: str, number: int, *arguments: int, refuse_setid: bool = False, arch: int | None = None) -> int:
    """What the filter answers, by the rules of classic BPF: how the other machine's filter is tested here."""
    code = build_filter(machine, refuse_setid=refuse_setid)
    program = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    padded = (*arguments, *([0] * (6 - len(arguments))))
    known = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    data = struct.pack("<IIQ6Q", number, known if arch is None else arch, 0, *padded)
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, operand = program[at]
        at += 1
        if operation == 0x06:
            return int(operand)
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, operand)[0]
        elif operation == 0x54:
            accumulator &= operand
        else:
            holds = {
                0x15: accumulator == operand,
                0x25: accumulator > operand,
                0x35: accumulator >= operand,
                0x45: bool(accumulator & operand),
            }[operation]
            at += if_true if holds else if_false


ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def test_a_machine_without_a_call_table_is_refused_with_a_sentence() -> None:
    with pytest.raises(UnsupportedSpecError, match=r"no system call filter for the machine type 'riscv64'"):
        build_filter("riscv64", refuse_setid=False)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("refuse_setid", [False, True])
def test_every_jump_lands_inside_the_program_and_every_path_returns(machine: str, refuse_setid: bool) -> None:
    code = build_filter(machine, refuse_setid=refuse_setid)
    assert len(code) % 8 == 0
    assert len(code) // 8 < 4096
    program = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    for at, (operation, if_true, if_false, _) in enumerate(program):
        if operation not in (0x06, 0x20, 0x54):
            assert at + 1 + max(if_true, if_false) < len(program)
    assert program[-1] == (0x06, 0, 0, ALLOW)


def test_the_other_names_of_a_machine_give_the_same_filter() -> None:
    assert build_filter("amd64", refuse_setid=True) == build_filter("x86_64", refuse_setid=True)
    assert build_filter("arm64", refuse_setid=False) == build_filter("aarch64", refuse_setid=False)


def test_aarch64_refuses_by_its_own_call_numbers() -> None:
    assert simulate("aarch64", 40) == EPERM  # mount
    assert simulate("aarch64", 165) == ALLOW  # getrusage; mount on x86_64
    assert simulate("aarch64", 220, 0x10000000) == EPERM  # clone with CLONE_NEWUSER
    assert simulate("aarch64", 220, 0x003D0F00) == ALLOW  # clone as pthread_create does it
    assert simulate("aarch64", 435) == ENOSYS
    assert simulate("aarch64", 198, 40, 1, 0) == 0x50000 | errno.EAFNOSUPPORT
    assert simulate("aarch64", 198, 16, 3, 0) == ALLOW
    assert simulate("aarch64", 56, 0, 0, 0x40, 0o4755, refuse_setid=True) == EPERM
    assert simulate("aarch64", 56, 0, 0, 0, 0o4755, refuse_setid=True) == ALLOW
    assert simulate("aarch64", 56, 0, 0, 0x40, 0o4755) == ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_foreign_call_table_ends_the_process(machine: str) -> None:
    assert simulate(machine, 1, arch=0x40000003) == 0x80000000


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_newer_than_the_table_do_not_exist(machine: str) -> None:
    assert simulate(machine, 469) == ALLOW
    assert simulate(machine, 470) == ENOSYS
    assert simulate(machine, 0xFFFFFFFF) == ENOSYS


def test_x32_calls_do_not_exist() -> None:
    assert simulate("x86_64", 0x40000000 | 165) == ENOSYS
    assert simulate("x86_64", 0x40000000 | 1) == ENOSYS


@pytest.mark.parametrize(
    ("value", "answer"),
    [(0, ALLOW), (0xFFFFFFFF, ALLOW), (0x40000, ALLOW), (0x20008, ALLOW), (0x0400000, EPERM), (0x3, EPERM)],
)
def test_personality_takes_harmless_values_only(value: int, answer: int) -> None:
    assert simulate("x86_64", 135, value) == answer


@pytest.mark.parametrize(
    ("flags", "answer"),
    [(0, ALLOW), (0x400, ALLOW), (0x600, ALLOW), (0x80, EPERM), (0x10000000, EPERM), (0x1_0000_0400, EPERM)],
)
def test_unshare_takes_what_makes_no_namespace_in_both_halves(flags: int, answer: int) -> None:
    assert simulate("x86_64", 272, flags) == answer


@linux
@needs_x86_64
def test_the_kernel_takes_the_filter_and_refuses_what_administrates_it() -> None:
    answer = ask(
        "answer = {name: call(number, 0, 0, 0, 0, 0) for name, number in json.loads(sys.argv[2]).items()}",
        json.dumps(X86_64),
    )
    assert answer == dict.fromkeys(X86_64, errno.EPERM)


@linux
@needs_x86_64
def test_it_refuses_the_same_as_a_second_filter_on_top_of_another() -> None:
    answer = ask("answer = [call(165, 0, 0, 0, 0, 0), call(435, 0, 0), call(39)]", layers=2)
    assert answer == [errno.EPERM, errno.ENOSYS, 0]


@linux
@needs_x86_64
def test_no_namespace_can_be_made_on_any_path() -> None:
    answer = ask("""
flags = {"ns": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
         "pid": 0x20000000, "net": 0x40000000}
answer = {"unshare": {n: call(272, f) for n, f in flags.items()},
          "clone": {n: call(56, f | 17, 0, 0, 0, 0) for n, f in flags.items()},
          "upper": [call(56, f | 17 | 1 << 40, 0, 0, 0, 0) for f in flags.values()],
          "time": call(272, 0x80), "clone3": call(435, 0, 0)}
""")
    assert isinstance(answer, dict)
    assert set(answer["unshare"].values()) == {errno.EPERM}
    assert set(answer["clone"].values()) == {errno.EPERM}
    assert set(answer["upper"]) == {errno.EPERM}
    assert answer["time"] == errno.EPERM
    assert answer["clone3"] == errno.ENOSYS


@linux
def test_only_ordinary_socket_families_and_protocols_open() -> None:
    answer = ask("""
def family(*wanted):
    try:
        socket.socket(*wanted).close()
    except OSError as error:
        return error.errno
    return 0

answer = {str(n): family(n, socket.SOCK_STREAM) for n in range(3, 46) if n not in (10, 16)}
usual = [(1, 1), (1, 2), (2, 1), (2, 2), (10, 1), (10, 2), (2, 1, 6), (10, 2, 17), (16, 3, 0)]
answer["usual"] = [family(*one) for one in usual]
answer["odd protocols"] = [family(2, 1, 132), family(2, 1, 262), family(2, 6, 33), family(2, 2, 115), family(2, 1, 256)]
answer["netlink"] = [family(16, 3, protocol) for protocol in (4, 9, 12, 15, 16)]
answer["pairs"] = []
for wanted in ((1, 1), (30, 5), (2, 1)):
    try:
        [end.close() for end in socket.socketpair(*wanted)]
        answer["pairs"].append(0)
    except OSError as error:
        answer["pairs"].append(error.errno)
""")
    assert isinstance(answer, dict)
    assert answer.pop("usual") == [0] * 9
    assert answer.pop("odd protocols") == [errno.EPROTONOSUPPORT] * 5
    assert answer.pop("netlink") == [errno.EPROTONOSUPPORT] * 5
    assert answer.pop("pairs") == [0, errno.EAFNOSUPPORT, errno.EAFNOSUPPORT]
    assert answer == {str(n): errno.EAFNOSUPPORT for n in range(3, 46) if n not in (10, 16)}


@linux
@needs_x86_64
def test_upper_halves_of_int_arguments_hide_nothing() -> None:
    answer = ask("""
high = 1 << 40
answer = [call(41, 40 | high, 1, 0), call(41, 1 | high, 1, 0), call(16, 0, 0x5412 | high, 0), call(135, 3 | high)]
""")
    assert answer == [errno.EAFNOSUPPORT, 0, errno.EPERM, errno.EPERM]


@linux
def test_input_cannot_be_pushed_into_a_terminal() -> None:
    answer = ask("""
import fcntl, pty
main, side = pty.openpty()
answer = []
for request in (0x5412, 0x541C):
    try:
        fcntl.ioctl(side, request, b"x")
        answer.append(0)
    except OSError as error:
        answer.append(error.errno)
fcntl.ioctl(side, 0x5413, b" " * 8)
""")
    assert answer == [errno.EPERM, errno.EPERM]


SETID = """
answer = {}
open("file", "w").close()
fd = os.open("file", os.O_RDWR)
directory = os.open(".", os.O_RDONLY)

def attempt(name, operation, *arguments, **named):
    try:
        operation(*arguments, **named)
        answer[name] = 0
    except OSError as error:
        answer[name] = error.errno

for mode in (0o4755, 0o2755, 0o6755, 0o755):
    attempt("chmod %o" % mode, os.chmod, "file", mode)
    attempt("fchmod %o" % mode, os.fchmod, fd, mode)
    attempt("fchmodat %o" % mode, os.chmod, "file", mode, dir_fd=directory)
    attempt("openat %o" % mode, os.open, "new-%o" % mode, os.O_CREAT | os.O_WRONLY, mode)
    attempt("tmpfile %o" % mode, os.open, ".", 0o20200000 | os.O_WRONLY, mode)
    attempt("mknod %o" % mode, os.mknod, "node-%o" % mode, 0o100000 | mode)
raw = {"chmod": (90, b"file", 0o4755), "fchmodat2": (452, directory, b"file", 0o4755, 0), "creat": (85, b"c", 0o4755),
       "open": (2, b"o", os.O_CREAT | os.O_RDWR, 0o4755), "fchmod": (91, fd, 0o4755),
       "openat2": (437, -100, b"file", 0, 0), "mknodat": (259, directory, b"m", 0o104755, 0),
       "chmod hidden": (90, b"file", 0o4755 | 1 << 40)}
for name, arguments in raw.items():
    answer["raw " + name] = call(*arguments)
answer["kept"] = oct(os.stat("file").st_mode & 0o7777)
answer["read"] = call(257, -100 & (1 << 64) - 1, b"file", os.O_RDONLY, 0o6000)
"""


@linux
@needs_x86_64
def test_no_file_becomes_setuid_or_setgid_on_any_path_when_asked_to_hold_that(tmp_path: Path) -> None:
    answer = ask(SETID, refuse_setid=True, cwd=tmp_path)
    assert isinstance(answer, dict)
    assert answer.pop("kept") == "0o755"
    assert answer.pop("read") == 0
    assert answer.pop("raw openat2") == errno.ENOSYS
    plain = {name: value for name, value in answer.items() if name.endswith(" 755")}
    assert set(plain.values()) == {0}
    assert {name: value for name, value in answer.items() if value != errno.EPERM} == plain
    assert not [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o6000]


@linux
@needs_x86_64
def test_setuid_bits_are_left_alone_otherwise(tmp_path: Path) -> None:
    answer = ask(SETID, cwd=tmp_path)
    assert isinstance(answer, dict)
    assert answer["chmod 4755"] == 0
    assert answer["openat 2755"] == 0


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


def bash(script: str) -> tuple[str, ...]:
    return ("bash", "-c", script)


WORKERS = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]
"""
CHILD_WATCHER = """
import asyncio
async def main():
    await (await asyncio.create_subprocess_exec("true")).wait()
asyncio.run(main())
"""
NODE = """
const { Worker } = require('worker_threads'), fs = require('fs'), { execSync } = require('child_process');
new Worker('1', { eval: true }).on('exit', () => fs.promises.writeFile('f', 'x').then(() => execSync('true')));
"""
ORDINARY = {
    "threads": python("import threading as t; x = t.Thread(target=print); x.start(); x.join()"),
    "subprocess": python("import subprocess; subprocess.run(['true'], check=True)"),
    "multiprocessing": python(WORKERS),
    "asyncio": python(CHILD_WATCHER),
    "resolver": python("import socket; socket.getaddrinfo('localhost', 80)"),
    "venv": (sys.executable, "-m", "venv", "--without-pip", "env"),
    "git": bash("git init -q r && cd r && echo a >a && git add a && git -c user.name=n -c user.email=e@x commit -qm m"),
    "gcc": bash('echo "int main(void){return 0;}" >a.c && gcc a.c -o a && ./a'),
    "make": bash("printf 'all:\\n\\techo made\\n' >Makefile && make"),
    "node": ("node", "-e", NODE),
    "strace": ("strace", "-f", "-o", "trace", "true"),
}


@functools.cache
def present(program: str) -> bool:
    return shutil.which(program) is not None


def ordinary_programs() -> list[str]:
    return [name for name, argv in ORDINARY.items() if present(argv[0]) and (argv[0] != "bash" or present(name))]


@linux
@pytest.mark.parametrize("refuse_setid", [False, True])
@pytest.mark.parametrize("name", ordinary_programs())
def test_ordinary_programs_do_not_notice_it(name: str, refuse_setid: bool, tmp_path: Path) -> None:
    done = run_under_filter(
        "os.execvp(sys.argv[2], sys.argv[2:])", *ORDINARY[name], refuse_setid=refuse_setid, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


@linux
@pytest.mark.needs("tester")
def test_an_ordinary_user_can_install_it_too() -> None:
    code = build_filter(MACHINE, refuse_setid=True).hex()
    text = INSTALL + "print(call(39))"
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-B", "-c", text, code],
        user="tester",
        group="tester",
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
        env={"PATH": os.defpath},
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
