"""Filters: what reads its input, or files in reach, and prints."""

from __future__ import annotations

from bubbles.controller.policy.lane.kinds import LOOK, NUMBER, PAIR, READ, REPORT, TEXT, WORD, matching
from bubbles.controller.policy.lane.scripts import AWK, JQ, SED
from bubbles.controller.policy.lane.table import Tool

_COUNT = matching(r"[+-]?\d{1,6}", "a whole number below a million")

PROGRAMS: dict[str, Tool] = {
    "wc": Tool(flags="-l -w -c -m -L --lines --words --bytes --chars --max-line-length", operands=LOOK, tame=True),
    "sort": Tool(
        flags="""-n -r -u -b -h -V -g -d -i -f -M -s -z -c -C -m -R --numeric-sort --reverse --unique
        --human-numeric-sort --version-sort --ignore-case --stable --check --ignore-leading-blanks
        --general-numeric-sort --merge --dictionary-order""",
        takes={WORD: "-k --key -t --field-separator", NUMBER: "--parallel"},
        traps={
            "-o --output": "writes a file",
            "--compress-program": "names a program to run",
            "-S --buffer-size -T --temporary-directory": "chooses where and when temporary files are written",
            "--files0-from": "takes its paths from a file",
        },
        operands=READ,
    ),
    "uniq": Tool(
        flags="-c -d -D -u -i -z --count --repeated --unique --ignore-case",
        takes={NUMBER: "-f -s -w --skip-fields --skip-chars --check-chars"},
        operands=READ,
        most=1,  # a second one is written
    ),
    "cut": Tool(
        flags="-s -n -z --only-delimited --complement",
        takes={WORD: "-d --delimiter --output-delimiter", TEXT: "-f -c -b --fields --characters --bytes"},
        operands=READ,
    ),
    "tr": Tool(flags="-d -s -c -C -t --delete --squeeze-repeats --complement", operands=WORD),
    "nl": Tool(takes={WORD: "-b -s -n -w -v -i -h -f -d -l"}, flags="-p", operands=READ),
    "column": Tool(
        flags="-t -e -x -J --table", takes={WORD: "-s -o -N -R -H -O -W --separator", NUMBER: "-c -l"}, operands=READ
    ),
    "paste": Tool(flags="-s -z --serial", takes={WORD: "-d --delimiters"}, operands=READ),
    "comm": Tool(flags="-1 -2 -3 -i --nocheck-order --total", operands=READ),
    "fold fmt": Tool(flags="-s -b -NUM --spaces", takes={NUMBER: "-w --width"}, operands=READ),
    "rev tac": Tool(operands=READ),
    "expand unexpand": Tool(flags="-i -a", takes={NUMBER: "-t"}, operands=READ),
    "seq": Tool(
        flags="-w",
        takes={
            matching(r".{0,8}", "a short text"): "-s",
            matching(r"[\w .:/-]{0,20}%0?\d{0,2}(?:\.\d)?[gfe][\w .:/-]{0,20}", "a short format"): "-f",
        },
        lead=(_COUNT, matching(r"[+-]?[1-9]\d{0,5}", "a whole number below a million, nor 0")),
        operands=_COUNT,
        most=3,
    ),
    "jq": Tool(
        flags="""-r -c -e -s -n -R -C -M -S -j -a --raw-output --compact-output --exit-status --slurp --null-input
        --raw-input --color-output --monochrome-output --sort-keys --join-output --ascii-output --tab --stream --seq
        --version""",
        takes={PAIR: "--arg --argjson", NUMBER: "--indent"},
        traps={
            "-f --from-file": "reads its program from a file",
            "-L --library-path": "names modules to load",
            "--slurpfile --rawfile --args --jsonargs": "is rarely needed",
        },
        lead=(JQ,),
        operands=READ,
    ),
    "sed": Tool(
        flags="""-n -E -r -s -u -z --quiet --silent --regexp-extended --sandbox --posix --separate --unbuffered
        --null-data --debug""",
        takes={SED: "-e --expression", NUMBER: "-l --line-length"},
        traps={"-i --in-place": "rewrites files", "-f --file": "reads its script from a file"},
        lead=(SED,),
        lead_unless="-e --expression",
        operands=READ,
    ),
    "awk gawk mawk": Tool(
        takes={WORD: "-F", matching(r"[A-Za-z_]\w*=[^\\]*", "NAME=value"): "-v"},
        traps={"-f --file": "reads its program from a file", "-i -l -e -E": "names code to load"},
        lead=(AWK,),
        operands=READ,
    ),
    "tee": Tool(flags="-a -i --append", operands=REPORT),
}
