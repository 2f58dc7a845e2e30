"""The machine itself: power, other processes, users, services, network, kernel, clock, packages; and other users."""

from __future__ import annotations

from collections.abc import Iterator

from bubbles.controller.policy.blacklist.finding import Call, Checker, Hit, Table, destructive, every, high_risk
from bubbles.controller.policy.blacklist.options import PLAIN, shape

_HELP = frozenset(("--help", "--version", "-h", "-V"))


def _asks_for_help(call: Call) -> bool:
    return bool(call.args) and call.args[0] in _HELP


def _power(call: Call) -> Iterator[Hit]:
    if call.program == "shutdown" and any(arg in ("-c", "--show") for arg in call.args):
        return
    if not any(arg in ("--help", "--version") for arg in call.args):
        yield destructive(f"{call.program} stops or restarts the machine")


def _runlevel(call: Call) -> Iterator[Hit]:
    level = PLAIN.take(call.args).operands[:1]
    if level and level[0] in "0 1 2 3 4 5 6 s S q Q u U a b c".split():
        yield destructive(f"{call.program} {level[0]} changes the run level of the machine")


def _always(reason: str, *, bare: bool = True) -> Checker:
    """Every use of it, except to be told how to use it. ``bare``: without arguments too."""

    def check(call: Call) -> Iterator[Hit]:
        if (call.args or bare) and not _asks_for_help(call):
            yield high_risk(f"{call.program} {reason}")

    return check


def _other_user(call: Call) -> Iterator[Hit]:
    yield high_risk(f"{call.program} runs things with another user's rights")


def _except(harmless: str, reason: str, *, bare: bool = False) -> Checker:
    """A program with verbs or options that only look: any that is not one of ``harmless`` is a hit."""
    looks = frozenset(harmless.split())

    def check(call: Call) -> Iterator[Hit]:
        if _asks_for_help(call):
            return
        verb = next((arg for arg in call.args if arg in looks or arg[:1] != "-"), "")
        if verb in looks or (not verb and not bare):
            return
        yield high_risk(f"{call.program} {reason}")

    return check


def _only(harmful: str, reason: str) -> Checker:
    """A program of which some verbs or options do harm, wherever among the arguments they stand."""
    harms = frozenset(harmful.split())
    singles = tuple(one for one in harms if one.startswith("--"))

    def check(call: Call) -> Iterator[Hit]:
        for arg in call.args:
            if arg in harms or (arg[:2] == "--" and arg.partition("=")[0] in singles):
                yield high_risk(f"{call.program} {arg} {reason}")
                return

    return check


def _kill(call: Call) -> Iterator[Hit]:
    args = call.args
    if args[:1] in (("-s",), ("-n",), ("--signal",)):
        args = args[2:]
    elif args and args[0][:1] == "-" and args[0] != "--" and (len(args) > 1):
        if args[0] in ("-l", "-L"):
            return
        args = args[1:]
    if "-1" in args:
        yield destructive("kill of every process (-1)")
    elif "1" in args:
        yield high_risk("kill of process 1, which everything else stands on")


def _systemctl(call: Call) -> Iterator[Hit]:
    operands = shape("HMtnop", "", "host machine type property output lines root").take(call.args).operands
    verb = operands[0] if operands else ""
    if verb in ("poweroff", "reboot", "halt", "kexec", "soft-reboot", "emergency", "rescue", "exit", "isolate"):
        yield destructive(f"{call.program} {verb} stops or restarts the machine")
    elif verb and verb not in _UNIT_LOOKS and not verb.startswith("list-"):
        yield high_risk(f"{call.program} {verb} changes services or what starts with the system")


_UNIT_LOOKS = frozenset(
    "status show cat help is-active is-enabled is-failed is-system-running get-default show-environment"
    " session-status user-status seat-status show-session show-user show-seat".split()
)


def _service(call: Call) -> Iterator[Hit]:
    if len(call.args) > 1 and call.args[1] not in ("status", "--status-all"):
        yield high_risk(f"service {call.args[0]} {call.args[1]} changes a system service")


def _crontab(call: Call) -> Iterator[Hit]:
    if not (shape("u").take(call.args).has("l") or _asks_for_help(call)):
        yield high_risk("crontab changes what runs later on its own")


def _at(call: Call) -> Iterator[Hit]:
    if not shape("qft").take(call.args).has("l", "V", "c"):
        yield high_risk(f"{call.program} makes something run later on its own")


def _date(call: Call) -> Iterator[Hit]:
    options = shape("drfI", "set utc iso-8601 rfc-email universal", "date file reference rfc-3339").take(call.args)
    if options.has("s", "set") or any(operand.rstrip("0123456789.") == "" for operand in options.operands):
        yield high_risk("date sets the clock")


def _sysctl(call: Call) -> Iterator[Hit]:
    if any("=" in arg for arg in call.args) or shape("r").take(call.args).has("w", "p", "load", "system", "write"):
        yield high_risk("sysctl changes settings of the kernel")


def _mount(call: Call) -> Iterator[Hit]:
    options = shape("toLUO").take(call.args)
    if options.operands or options.has("a", "all"):
        yield high_risk(f"{call.program} changes what file systems are in place")


def _ip(call: Call) -> Iterator[Hit]:
    changing = ("set", "add", "del", "delete", "flush", "change", "replace", "append", "exec", "down", "up")
    verb = next((arg for arg in call.args if arg in changing), None)
    if verb is not None:
        yield high_risk(f"{call.program} {verb} changes the network of the machine")


def _ifconfig(call: Call) -> Iterator[Hit]:
    if len(PLAIN.take(call.args).operands) > 1:
        yield high_risk("ifconfig changes the network of the machine")


def _firewall(call: Call) -> Iterator[Hit]:
    options = shape("tcpsdijm").take(call.args)
    if call.args and not options.has("L", "S", "n", "V", "list", "list-rules", "version", "help", "C", "check"):
        yield high_risk(f"{call.program} changes the firewall")


def _attach(call: Call) -> Iterator[Hit]:
    program, args = call.program, call.args
    named = any(
        arg.startswith(("-p", "--pid", "--attach")) or (arg[:1] == "-" and arg[1:].isalpha() and arg[-1] == "p")
        for arg in args
    )
    by_number = program in ("gdb", "cgdb") and len(args) > 1 and args[-1].isdigit()
    if named or by_number or args[:1] == ("attach",):
        yield high_risk(f"{program} attaches to a running process")


def _packages(call: Call) -> Iterator[Hit]:
    removing = (
        *("remove", "purge", "autoremove", "erase", "uninstall", "del", "delete", "rm", "dist-upgrade"),
        *("--remove", "--purge", "--erase", "full-upgrade", "zap", "clean-all", "autopurge", "-e", "-P", "-r"),
    )
    verb = next((arg for arg in call.args if arg in removing or arg.startswith("-R")), None)
    if verb is not None:
        yield high_risk(f"{call.program} {verb} removes installed software")


def _hostname(call: Call) -> Iterator[Hit]:
    options = PLAIN.take(call.args)
    if options.operands or options.has("F", "b", "file"):
        yield high_risk("hostname renames the machine")


_ACCOUNTS = (
    "passwd chpasswd useradd adduser usermod userdel deluser groupadd groupdel groupmod gpasswd newusers chsh chfn vipw"
    " vigr visudo sudoedit dseditgroup sysadminctl chage pwck grpck"
)

TABLE: Table = {
    **every("shutdown reboot halt poweroff", _power),
    **every("init telinit", _runlevel),
    **every("sudo doas su pkexec run0 runuser gosu su-exec dzdo calife sudo-rs setpriv sg newgrp", _other_user),
    **every(_ACCOUNTS, _always("changes users, groups or their rights")),
    **every("kexec pivot_root nsenter chroot", _always("reaches past the place that commands run in")),
    **every(
        "insmod modprobe rmmod depmod kmod", _except("-l -n -c -D --dry-run list static-nodes", "changes the kernel")
    ),
    **every(
        "setenforce aa-disable aa-teardown aa-complain semanage setsebool auditctl", _always("weakens protections")
    ),
    **every("killall pkill skill xkill fkill killall5 slay", _always("ends processes by name, others' too")),
    **every("swapon swapoff losetup", _always("changes disks in use", bare=False)),
    **every("setcap capsh", _always("grants rights of the superuser", bare=False)),
    **every("gcore reptyr injectso dlv-attach", _always("takes hold of a running process")),
    **every("systemd-run rc-update chkconfig update-rc.d initctl ", _always("starts or arranges system services")),
    **every("ntpdate chronyc rdate", _always("sets the clock")),
    **every("ifup ifdown dhclient wpa_cli", _always("changes the network of the machine")),
    **every("umount fusermount", _mount),
    "mount": _mount,
    "kill": _kill,
    **every("systemctl loginctl machinectl", _systemctl),
    "service": _service,
    "launchctl": _except("list print help version blame", "changes what starts with the system"),
    "crontab": _crontab,
    "at": _at,
    **every("batch atrm", _always("changes what runs later on its own")),
    "date": _date,
    "hwclock": _only("-w -s --set --systohc --hctosys --adjust", "sets the clock"),
    "timedatectl": _except("status show timesync-status list-timezones", "sets the clock"),
    "localectl": _except("status list-locales list-keymaps", "changes the system's language"),
    "hostnamectl": _except("status hostname --json", "renames the machine"),
    "hostname": _hostname,
    "sysctl": _sysctl,
    **every("ip route bridge tc", _ip),
    "ifconfig": _ifconfig,
    "nmcli": _only("down up delete modify add off disconnect connect", "changes the network of the machine"),
    "rfkill": _only("block unblock toggle", "changes the network of the machine"),
    "networksetup": _except("", "changes the network of the machine"),
    **every("iptables ip6tables ebtables arptables", _firewall),
    **every("iptables-restore ip6tables-restore pfctl", _always("changes the firewall", bare=True)),
    "nft": _except("list describe -v", "changes the firewall"),
    "ufw": _except("status version show app", "changes the firewall"),
    "firewall-cmd": _only(
        "--reload --permanent --add-port --remove-port --add-service --panic-on", "changes the firewall"
    ),
    **every("gdb cgdb lldb strace ltrace perf py-spy dlv frida", _attach),
    **every("apt apt-get aptitude dpkg yum dnf rpm zypper pacman yay apk brew snap flatpak port emerge", _packages),
    "journalctl": _only("--rotate --vacuum-size --vacuum-time --vacuum-files --flush", "removes system logs"),
    "dmesg": _only("-C -c --clear --read-clear -D -E -n", "changes the kernel log"),
}
