"""Looking at files and at the machine."""

from __future__ import annotations

import re

from bubbles.controller.policy.lane import files
from bubbles.controller.policy.lane.kinds import (
    FOLDER,
    LOOK,
    NAME,
    NUMBER,
    READ,
    SAID,
    TEXT,
    WHEN,
    WORD,
    matching,
    one_of,
)
from bubbles.controller.policy.lane.table import UNLISTED, Kind, Site, Tool
from bubbles.controller.policy.shell.reading import Hole

_ENDLESS = "never ends"
_WRITES = "writes a file"
_PROGRAM = "names a program to run"
_DELETES = "deletes files"
_FOLLOWS = "follows links out of the folder"
_HIDDEN = "also reads hidden files, where keys are kept"


def _pattern(text: str, _site: Site) -> str | None:
    """Of the names of files to look into: none that hidden files alone would have."""
    hidden = text.rpartition("/")[2][:1] in (".", "{", "[", "")
    return f"{text} may be a pattern for hidden files" if hidden else None


PATTERN = Kind(check=_pattern, free=True)
_SHORT_WAIT = matching(r"(?:[0-5]?\d|60)(?:\.\d+)?s?|0?\.\d+s?", "at most a minute")


def _condition(text: str, site: Site) -> str | None:
    """A word of ``test``: an operator that only looks, or a text, or a path in reach."""
    if text[:1] == "-" and len(text) > 1 and not text[1:].isdecimal():
        return None if text in _OPERATORS else f"{text} may run what its operand holds"
    return files.look(text, site) if text[:1] == "/" or ".." in text.split("/") else None


_OPERATORS = frozenset(
    "-a -b -c -d -e -f -g -h -k -L -n -o -O -p -r -s -S -u -w -x -z -eq -ne -lt -le -gt -ge -nt -ot -ef".split()
)
CONDITION = Kind(check=_condition, loose=Hole.INTEGER)


def _template(text: str, _site: Site) -> str | None:
    # -v 'a[$(x)]' evaluates what stands in the brackets; %n sets the variable that it is given.
    if text[:1] == "-" or _SETS(text.replace("%%", "")):
        return f"{text} may set a variable"
    return f"{text} may print without end" if _WIDE(text) else None


_SETS = re.compile(r"%[^a-zA-Z%]*+[hlLjzt]*+n").search
_WIDE = re.compile(r"%[^a-zA-Z%]*?(?:\*|\d{4})").search


_TEMPLATE = Kind(check=_template, loose=Hole.INTEGER)


def _enter(text: str, site: Site) -> str | None:
    return "- is not known before it runs" if text == "-" else files.own(text, site)


def _format(text: str, _site: Site) -> str | None:
    return None if text[:1] == "+" else f"{text} sets the clock"


_GREP = Tool(
    flags="""-n -i -y -v -w -x -c -l -L -q -s -o -r -h -H -E -F -G -P -a -b -z -Z -T -U -I -NUM --line-number
    --ignore-case --no-ignore-case --invert-match --word-regexp --line-regexp --count --files-with-matches
    --files-without-match --quiet --silent --no-messages --only-matching --recursive
    --no-filename --with-filename --extended-regexp --fixed-strings --basic-regexp --perl-regexp --text --null
    --null-data --line-buffered --initial-tab --byte-offset --version -V""",
    takes={
        TEXT: "-e --regexp",
        READ: "-f --file --exclude-from",
        NUMBER: "-A -B -C -m --after-context --before-context --context --max-count",
        PATTERN: "--include",
        WORD: "--exclude --exclude-dir --label",
        one_of("read skip recurse"): "-d --directories -D --devices",
        one_of("binary text without-match"): "--binary-files",
    },
    joined={WHEN: "--color --colour"},
    traps={"-R --dereference-recursive": _FOLLOWS},
    lead=(WORD,),
    lead_unless="-e --regexp -f --file",
    operands=READ,
)
_RG = Tool(
    flags="""-n -i -s -S -v -w -x -c -l -q -o -h -H -I -N -F -P -U -a -b -p -0 --line-number
    --no-line-number --ignore-case --case-sensitive --smart-case --invert-match --word-regexp --line-regexp --count
    --count-matches --files-with-matches --files-without-match --files --quiet --only-matching --with-filename
    --no-filename --fixed-strings --pcre2 --multiline --multiline-dotall --text --byte-offset --pretty
    --no-ignore --no-ignore-vcs --no-ignore-parent --no-ignore-dot --no-ignore-global --no-ignore-files
    --heading --no-heading --column --stats --trim --vimgrep --json --type-list --null --no-messages
    --no-config --one-file-system --crlf --max-columns-preview --passthru --debug --line-buffered --no-ignore-messages
    --no-require-git --glob-case-insensitive --version -V""",
    takes={
        TEXT: "-e --regexp",
        READ: "-f --file --ignore-file",
        PATTERN: "-g --glob --iglob",
        WORD: """-t --type -T --type-not --type-add --type-clear -r --replace --colors
        --context-separator -E --encoding --engine --field-match-separator --path-separator""",
        NUMBER: """-A -B -C -m -M -j -d --after-context --before-context --context --max-count --max-columns
        --max-depth --max-filesize --threads""",
        one_of("none path modified accessed created"): "--sort --sortr",
        WHEN: "--color",
    },
    traps={
        "-u -uu -uuu -. --unrestricted --hidden": _HIDDEN,
        "-L --follow": _FOLLOWS,
        "--pre --pre-glob --hostname-bin": _PROGRAM,
        "-z --search-zip": "starts programs that unpack",
    },
    lead=(WORD,),
    lead_unless="-e --regexp -f --file --files --type-list",
    operands=READ,
)
_FIND = Tool(
    flags="""-P -not -o -or -a -and -print -print0 -ls -prune -empty -readable -writable -executable -daystart
    -depth -d -mount -xdev -noleaf -true -false -nouser -nogroup -quit -ignore_readdir_race -O1 -O2 -O3""",
    takes={
        TEXT: """-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -lname -ilname -type
        -xtype -perm -user -group -size -mtime -mmin -atime -amin -ctime -cmin -maxdepth -mindepth -printf -links
        -inum -fstype -used -newermt -newerct -newerat -uid -gid""",
        LOOK: "-newer -anewer -cnewer -samefile",
    },
    traps={
        "-L -H -follow": _FOLLOWS,
        "-exec -execdir -ok -okdir": "runs a program for each file",
        "-delete": _DELETES,
        "-fprint -fprint0 -fprintf -fls": _WRITES,
        "-files0-from": "takes its paths from a file",
    },
    operands=Kind(
        check=lambda text, site: None if text in ("!", "(", ")", ",") else files.look(text, site), globs=True
    ),
    bundles=False,
    dashes=False,
)
_FD = Tool(
    flags="""-H -I -u -s -i -g -F -a -l -p -0 -q -1 --hidden --no-ignore --unrestricted --case-sensitive
    --ignore-case --glob --fixed-strings --absolute-path --list-details --full-path --print0 --no-ignore-vcs
    --quiet --version""",
    takes={
        WORD: "-e --extension -t --type -E --exclude -S --size --changed-within --changed-before --and",
        NUMBER: "-d --max-depth --min-depth --exact-depth --max-results -j --threads",
        WHEN: "-c --color",
    },
    traps={"-x -X --exec --exec-batch": "runs a program for each file", "-L --follow": _FOLLOWS},
    lead=(WORD,),
    operands=LOOK,
)
_LS = Tool(
    flags="""-a -A -l -h -t -r -R -S -1 -d -F -i -s -G -n -o -p -g -k -x -m -c -u -U -X -Z -b -q -Q -B -C -N -f
    -v --all --almost-all --human-readable --recursive --reverse --directory --size --inode --classify --full-time
    --si --no-group --group-directories-first --numeric-uid-gid --file-type --version""",
    takes={
        WORD: "-I --ignore --hide --sort --time --time-style --format --indicator-style --block-size",
        NUMBER: "-w -T",
    },
    joined={WHEN: "--color --hyperlink"},
    traps={"-L -H --dereference": _FOLLOWS},
    operands=LOOK,
    tame=True,
)
_ENDS = Tool(
    flags="-q -v -z -NUM --quiet --silent --verbose --zero-terminated",
    takes={NUMBER: "-n -c --lines --bytes"},
    operands=READ,
)
_ENDED = Kind(
    check=lambda text, site: (
        f"{text} may be a count, and f after it follows" if text[:1] == "+" else files.read(text, site)
    ),
    globs=True,
)
_SUM = Tool(
    flags="-b -t -z --binary --text --tag --zero",
    takes={NUMBER: "-a --algorithm -l --length"},
    traps={"-c --check": "takes its paths from a file"},
    operands=LOOK,
)

_LOOKING: dict[str, Tool] = {
    "ls": _LS,
    "find": _FIND,
    "fd fdfind": _FD,
    "grep egrep fgrep": _GREP,
    "rg": _RG,
    "cat": Tool(
        flags="""-n -b -s -A -E -T -v -e -t -u --number --number-nonblank --squeeze-blank --show-all --show-ends
        --show-tabs""",
        operands=READ,
    ),
    "head": _ENDS,
    "tail": Tool(like=(_ENDS,), traps={"-f -F --follow --retry --pid": _ENDLESS}, operands=_ENDED),
    "file": Tool(
        flags="""-b -i -L -h -k -N -r -0 --brief --mime --mime-type --mime-encoding --dereference --no-dereference
        --extension""",
        traps={
            "-C --compile": _WRITES,
            "-f --files-from": "takes its paths from a file",
            "-z": "starts programs that unpack",
        },
        operands=LOOK,
    ),
    "stat": Tool(
        flags="-L -f -t -x --dereference --file-system --terse",
        takes={WORD: "-c --format --printf"},
        operands=LOOK,
        tame=True,
    ),
    "du": Tool(
        flags="""-s -h -a -c -k -m -b -x -S -0 --summarize --human-readable --all --total --apparent-size --si
        --one-file-system --inodes""",
        takes={NUMBER: "-d --max-depth -t --threshold", WORD: "--exclude"},
        traps={"-L --dereference": _FOLLOWS},
        operands=LOOK,
        tame=True,
    ),
    "df": Tool(flags="-h -k -m -i -T -P -a -l --human-readable --inodes --print-type --total", operands=LOOK),
    "tree": Tool(
        flags="""-a -d -f -i -h -s -p -u -g -D -F -n -C -A -J -X -r -t -v -U --dirsfirst --filesfirst --gitignore
        --noreport --prune --du --si --matchdirs --ignore-case --metafirst --version""",
        takes={NUMBER: "-L --filelimit", WORD: "-I -P --charset --timefmt --sort"},
        traps={"-o": _WRITES, "-R": "may write files", "--fromfile": "reads a list from a file", "-l": _FOLLOWS},
        operands=LOOK,
    ),
    "basename dirname": Tool(flags="-a -z --multiple --zero", takes={WORD: "-s --suffix"}, operands=WORD, least=1),
    "realpath": Tool(
        flags="-e -m -s -L -P -q -z", takes={LOOK: "--relative-to --relative-base"}, operands=LOOK, least=1
    ),
    "readlink": Tool(flags="-f -e -m -n -q -s -v -z --canonicalize", operands=LOOK, least=1),
    "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum shasum": _SUM,
    "diff": Tool(
        flags="""-u -q -y -w -b -B -i -N -a -s -c -p -E -d -t -NUM --brief --side-by-side
        --ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-case --new-file --text
        --report-identical-files --strip-trailing-cr --suppress-common-lines --minimal --show-c-function
        --no-dereference --normal""",
        takes={NUMBER: "-U -C -W --width", WORD: "-x --exclude -I --ignore-matching-lines -L --label -F"},
        joined={NUMBER: "--unified --context", WHEN: "--color"},
        traps={
            "-r --recursive": _FOLLOWS,
            "-l --paginate": "starts another program",
            "-X --exclude-from --from-file --to-file": "is rarely needed",
        },
        operands=READ,
        most=2,
    ),
    "cmp": Tool(flags="-s -l -b --silent --quiet", takes={NUMBER: "-n -i --bytes"}, operands=READ, most=2),
    "xxd": Tool(
        flags="-p -b -u -a -i -e -E -ps -plain",
        takes={NUMBER: "-l -s -c -g -len -seek -cols"},
        traps={"-r -revert": "makes a file from a dump"},
        operands=READ,
        most=1,  # a second one is written
        bundles=False,
        glued="-l -s -c -g",
    ),
    "od": Tool(flags="-c -b -x -d -o -a -v -i -l -s", takes={NUMBER: "-N -j -w", NAME: "-A -t"}, operands=READ, most=1),
    "hexdump hd": Tool(flags="-C -b -c -d -o -x -v", takes={NUMBER: "-n -s", WORD: "-e"}, operands=READ),
    "readelf": Tool(flags="-a -h -l -S -s -d -n -r -V -A -W --all --wide --dyn-syms --syms --headers", operands=READ),
    "objdump": Tool(
        flags="-d -D -t -T -h -x -p -r -R -s -S -f -a -C -l -w --demangle --no-show-raw-insn --disassemble --syms",
        takes={WORD: "-j --section -M"},
        operands=READ,
    ),
    "strings": Tool(
        flags="-a -f", takes={NUMBER: "-n", one_of("o d x"): "-t", one_of("s S b l B L"): "-e"}, operands=READ
    ),
    "nm size": Tool(flags="-C -g -u -D -A -n -S -d", operands=READ),
}

_NAMES = Tool(flags="-a -s", operands=NAME)
_MACHINE: dict[str, Tool] = {
    "pwd": Tool(flags="-P -L --logical --physical"),
    "cd": Tool(flags="-P -L", operands=Kind(check=_enter), least=1, most=1, why="leads to the home folder"),
    "echo": Tool(plain=True, operands=SAID),
    "printf": Tool(plain=True, lead=(_TEMPLATE,), operands=SAID, least=1, why="needs a format"),
    "true false :": Tool(plain=True, operands=SAID),
    "exit": Tool(operands=Kind(check=NUMBER.check, loose=Hole.INTEGER), most=1),
    "sleep": Tool(operands=_SHORT_WAIT, least=1, most=1),
    # What writing a file by the file tool does unasked (DEC-14).
    "mkdir": Tool(flags="-p -v --parents --verbose", operands=FOLDER, least=1),
    "test": Tool(plain=True, operands=CONDITION, most=64),
    "[": Tool(plain=True, operands=CONDITION, most=64),
    "date": Tool(
        flags="-u -R --utc --universal --rfc-email",
        takes={WORD: "-d --date", LOOK: "-r --reference", one_of("date seconds ns"): "--rfc-3339"},
        joined={one_of("date hours minutes seconds ns"): "-I --iso-8601"},
        traps={"-s --set": "sets the clock", "-f --file": "reads a file"},
        operands=Kind(check=_format),
        most=1,
    ),
    "uname": Tool(flags="-a -s -n -r -v -m -p -i -o --all --kernel-name --kernel-release --machine --operating-system"),
    "arch": Tool(),
    "nproc": Tool(flags="--all", takes={NUMBER: "--ignore"}),
    "which": _NAMES,
    "type": Tool(flags="-t -a -p -P -f", operands=NAME, least=1),
    "command": Tool(flags="-v -V", needs="-v -V", why="runs a program", operands=NAME, permutes=False),
}

_VERSION = "--version -version -v -V -vV -dumpversion -dumpmachine"
_COMPILERS = "gcc g++ cc c++ clang clang++ rustc javac java kotlinc ghc swiftc gfortran ld nvcc zig nasm"
_OTHERS = """rustup gem julia tox nox pre-commit ansible terraform helm gradlew lua elixir erl scala sbt bazel ccache
    pkg-config autoconf automake nvm corepack sqlite3 psql protoc buf curl wget"""

PROGRAMS: dict[str, Tool] = {
    **_LOOKING,
    **_MACHINE,
    _COMPILERS: Tool(flags=f"{_VERSION} --verbose", needs=_VERSION, why=UNLISTED, bundles=False),
    "rustup": Tool(
        flags="--version", verbs={"show": Tool(flags="-v"), "toolchain target component": Tool(verbs={"list": Tool()})}
    ),
    "ruby perl php lua": Tool(flags="--version -v", needs="--version -v", why=UNLISTED),
    _OTHERS: Tool(flags="--version", needs="--version", why=UNLISTED),
}
