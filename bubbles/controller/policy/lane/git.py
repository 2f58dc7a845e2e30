"""git: what shows, and ``add`` and ``commit``."""

from __future__ import annotations

import re

from bubbles.controller.policy.lane import files
from bubbles.controller.policy.lane.kinds import LOOK, MOVE, NAME, NUMBER, OWN, READ, TEXT, WHEN, WORD, matching, one_of
from bubbles.controller.policy.lane.table import Kind, Site, Tool


def _revision_or_path(text: str, site: Site) -> str | None:
    """``HEAD~1``, ``main...HEAD``, ``HEAD:src/x``, ``:!lock.json``, ``src/x``: not outside, not to credentials."""
    if text.startswith(":("):
        text = text.partition(")")[2]
    elif text[:1] == ":":
        # ":/x", ":!x", "::x", ":^!/:x", and the stages of the index, ":0:x"
        text = _STAGE("", text.lstrip(":!^/"))
    elif text[:1] == "@":
        text = "HEAD" + text[1:]
    if not text:
        return None
    if text.count(":") > _MOST_COLONS:
        return f"{text} has more colons than a plain revision"
    # "HEAD^{/fix: x}:path": which colon stands before the path is not looked into.
    parts = text.split(":")
    tails = [":".join(parts[at:]) for at in range(1, len(parts))]
    return next(filter(None, (files.read(part, site) for part in (*tails, parts[0]) if part)), None)


_STAGE = re.compile(r"^[0-3]:", re.ASCII).sub
_MOST_COLONS = 6


def _pathspec(text: str, site: Site) -> str | None:
    """As above, where only paths stand, and what they name goes into the history."""
    if text.startswith(":"):
        return _revision_or_path(text, site)
    return files.own(text, site) or files.read(text, site)


def _line_range(text: str, site: Site) -> str | None:
    """``10,20:src/x``, ``:function:src/x``, or for ``blame`` only ``10,20``."""
    _, colon, path = text.rpartition(":")
    return files.read(path, site) if colon else None


def _format(text: str, _site: Site) -> str | None:
    # %G… has a signature checked, by the program that the configuration names.
    return f"{text} starts the program that checks signatures" if "%G" in text or "%(signature" in text else None


def _setting(text: str, _site: Site) -> str | None:
    if text.partition(".")[0] in _SETTINGS and "extraheader" not in text.lower():
        return None
    return f"{text} may hold credentials"


_SETTINGS = frozenset("user core remote branch init commit pull push merge diff rebase color status log tag".split())

REVISION = Kind(check=_revision_or_path, globs=True)
PATHSPEC = Kind(check=_pathspec, globs=True)
_LINES = Kind(check=_line_range)
_FORMAT = Kind(check=_format)

_EDITOR = "opens an editor"
_CHANGES = "changes the repository"
_NETWORK = "reaches another machine"

_DIFF = Tool(
    flags="""-p -u --patch -s --no-patch --raw --patch-with-raw --minimal --patience --histogram --numstat --shortstat
    --compact-summary --summary --name-only --name-status --no-color --color-moved --no-renames --check --full-index
    --binary -R --pickaxe-all --pickaxe-regex -a --text --ignore-cr-at-eol --ignore-space-at-eol -b
    --ignore-space-change -w --ignore-all-space --ignore-blank-lines -W --function-context --exit-code --quiet
    --no-ext-diff --no-textconv --no-prefix --cumulative -z --indent-heuristic --no-indent-heuristic --no-relative
    --default-prefix""",
    takes={
        NUMBER: "-U --unified --inter-hunk-context --stat-width --stat-name-width --stat-count --stat-graph-width",
        WORD: """--diff-filter -S -G --find-object --anchored --line-prefix --src-prefix --dst-prefix
        --ws-error-highlight""",
        one_of("patience minimal histogram myers default"): "--diff-algorithm",
    },
    joined={
        WHEN: "--color",
        NUMBER: "--abbrev -M --find-renames -C --find-copies -B -l",
        matching(r"[\d,]*", "a width"): "--stat",
        NAME: "--dirstat -X --color-moved --word-diff --ignore-submodules --submodule",
        TEXT: "--word-diff-regex --color-words",
        OWN: "--relative",
    },
    traps={
        "--output": "writes a file",
        "--ext-diff --textconv": "starts programs that the configuration names",
        "-O": "reads an order from a file",
    },
)
_LOG = Tool(
    like=(_DIFF,),
    flags="""--oneline --graph --all --decorate --no-decorate --follow --reverse --merges --no-merges --first-parent
    --topo-order --date-order --author-date-order --abbrev-commit --no-abbrev-commit --left-right --cherry-pick
    --cherry-mark --cherry --boundary --no-walk -i --regexp-ignore-case -E --extended-regexp -F --fixed-strings -P
    --perl-regexp --invert-grep --all-match -g --walk-reflogs -c --cc -m --full-history --simplify-merges --parents
    --children --no-notes --relative-date --source --log-size -q --no-mailmap --use-mailmap -t -NUM
    --simplify-by-decoration --full-diff --ancestry-path --dense --sparse --count --objects --show-pulls --merge
    --no-expand-tabs""",
    takes={
        NUMBER: "-n --max-count --skip --min-parents --max-parents",
        WORD: """--author --committer --grep --since --after --until --before --date --glob --exclude --decorate-refs
        --decorate-refs-exclude --diff-merges --grep-reflog --since-as-filter --encoding""",
        _LINES: "-L",
        _FORMAT: "--format",
    },
    joined={_FORMAT: "--pretty", NAME: "--decorate --branches --tags --remotes --notes --expand-tabs"},
    traps={"--show-signature": "starts the program that checks signatures"},
    operands=REVISION,
)
_REFS = Tool(
    flags="-i --ignore-case --omit-empty",
    takes={WORD: "--sort", NAME: "--points-at", NUMBER: "--count", _FORMAT: "--format"},
    last={REVISION: "--contains --no-contains --merged --no-merged"},
    joined={WHEN: "--color", NUMBER: "--abbrev", NAME: "--column"},
)

_VERBS: dict[str, Tool] = {
    "diff": Tool(
        like=(_DIFF,),
        flags="--cached --staged --merge-base --no-index -0 -1 -2 -3 --base --ours --theirs",
        operands=REVISION,
    ),
    "log show whatchanged rev-list": _LOG,
    "diff-tree diff-index diff-files": Tool(
        like=(_DIFF,), flags="-r -t --root --cached --no-commit-id -m -c --cc --always", operands=REVISION
    ),
    "range-diff cherry": Tool(like=(_DIFF,), flags="-v", operands=REVISION),
    "status": Tool(
        flags="""-s -b -v -z --short --branch --verbose --long --show-stash --no-ahead-behind --ahead-behind
        --no-renames --renames --no-column""",
        joined={
            one_of("v1 v2 1 2"): "--porcelain",
            one_of("no normal all"): "-u --untracked-files",
            one_of("traditional no matching"): "--ignored",
            one_of("none untracked dirty all"): "--ignore-submodules",
            NUMBER: "-M --find-renames",
            NAME: "--column",
        },
        traps={"--help": "opens a manual page"},
        operands=PATHSPEC,
    ),
    "add stage": Tool(
        flags="""-A -u -n -v -N --all --no-all --no-ignore-removal --update --dry-run --verbose --intent-to-add
        --refresh --renormalize --ignore-errors --sparse""",
        takes={one_of("+x -x"): "--chmod"},
        traps={
            "-f --force": "adds files that the project leaves out on purpose",
            "-e --edit": _EDITOR,
            "-i -p --interactive --patch": "waits for somebody to type",
            "--pathspec-from-file": "takes its paths from a file",
        },
        operands=PATHSPEC,
    ),
    "commit": Tool(
        flags="""-a -q -v -s -o -i --all --quiet --verbose --signoff --no-signoff --dry-run --short --porcelain --long
        --branch --status --no-status --allow-empty --no-edit --no-gpg-sign --only --include --no-post-rewrite""",
        takes={
            TEXT: "-m --message",
            READ: "-F --file",
            one_of("strip whitespace verbatim scissors default"): "--cleanup",
        },
        joined={one_of("no normal all"): "-u --untracked-files"},
        traps={
            "-n --no-verify": "skips the checks of the repository",
            "--amend --reset-author": "rewrites the last commit",
            "-e --edit -c --reedit-message -t --template": _EDITOR,
            "-p --patch --interactive": "waits for somebody to type",
            "-S --gpg-sign": "signs with a key",
            "--author --date": "names another author or time",
            "--trailer": "may start a program",
            "--pathspec-from-file": "takes its paths from a file",
            "--fixup --squash -C --reuse-message": "is meant to rewrite commits",
        },
        needs="-m --message -F --file",
        why=f"without -m {_EDITOR}",
        operands=PATHSPEC,
    ),
    "branch": Tool(
        like=(_REFS,),
        flags="-a -r -v -vv -l --all --remotes --verbose --list --show-current --no-color --no-column --no-abbrev",
        traps={"-d -D -m -M -c -C -f -u --delete --move --copy --force --set-upstream-to": _CHANGES},
        operands=WORD,
        operands_need="-l --list",
    ),
    "tag": Tool(
        like=(_REFS,),
        flags="-l --list --no-column",
        joined={NUMBER: "-n"},
        traps={"-a -s -d -f -m -F -v": _CHANGES},
        operands=WORD,
        operands_need="-l --list",
    ),
    "for-each-ref": Tool(like=(_REFS,), operands=NAME),
    "show-ref": Tool(flags="-s -d -q --head --heads --tags --branches --verify --hash --quiet --exists", operands=NAME),
    "stash": Tool(verbs={"list": _LOG, "show": Tool(like=(_DIFF,), flags="-u --include-untracked", operands=REVISION)}),
    "reflog": Tool(like=(_LOG,), verbs={"show": _LOG}, traps={"expire delete drop write": _CHANGES}, bare=True),
    "remote": Tool(
        flags="-v --verbose",
        verbs={"get-url": Tool(flags="--all --push", operands=NAME)},
        traps={"show update prune": _NETWORK, "add remove rename set-url": _CHANGES},
        bare=True,
    ),
    "config": Tool(
        flags="--get --get-all --local --global --show-origin --show-scope -z",
        takes={NAME: "--type --default"},
        verbs={"get": Tool(flags="--all --local --global", lead=(Kind(check=_setting),))},
        traps={
            "-l --list list": "may show credentials",
            "--unset --add --replace-all --edit -e set unset edit": "changes settings, which may name programs",
            "-f --file --blob": "reads another file",
            "--system": "reads the system's settings",
        },
        lead=(Kind(check=_setting),),
        least=1,
        most=1,
        why="needs the name of a setting",
    ),
    "rev-parse": Tool(
        flags="""--show-toplevel --git-dir --absolute-git-dir --git-common-dir --show-prefix --show-cdup --verify -q
        --quiet --is-inside-work-tree --is-inside-git-dir --is-bare-repository --is-shallow-repository --symbolic
        --symbolic-full-name --all --branches --tags --remotes --show-superproject-working-tree --revs-only --no-revs
        --show-object-format""",
        joined={NUMBER: "--short", one_of("strict loose"): "--abbrev-ref"},
        takes={WORD: "--git-path"},
        operands=REVISION,
    ),
    "ls-files": Tool(
        flags="""-c -d -m -o -i -s -u -t -v -z -k --cached --deleted --modified --others --ignored --stage --unmerged
        --killed --exclude-standard --full-name --error-unmatch --directory --no-empty-directory --eol --deduplicate
        --recurse-submodules""",
        takes={WORD: "-x --exclude", READ: "-X --exclude-from", _FORMAT: "--format"},
        joined={NUMBER: "--abbrev"},
        operands=Kind(check=lambda text, site: LOOK.check(text.removeprefix(":!"), site), globs=True),
    ),
    "ls-tree": Tool(
        flags="-r -t -d -l -z --long --name-only --name-status --object-only --full-name --full-tree",
        takes={_FORMAT: "--format"},
        joined={NUMBER: "--abbrev"},
        operands=REVISION,
    ),
    "cat-file": Tool(
        flags="-t -s -e",
        traps={"-p": "may fetch what is missing, with a program that the repository's settings name"},
        operands=REVISION,
        least=1,
        why="reads names from its input",
    ),
    "blame annotate": Tool(
        flags="""-b -l -s -e -f -n -w -c -t -p --root --show-stats --show-name --show-number --show-email --porcelain
        --line-porcelain --first-parent --progress --no-progress""",
        takes={_LINES: "-L", WORD: "--date --ignore-rev --since", READ: "--ignore-revs-file"},
        joined={NUMBER: "--abbrev -M -C"},
        operands=REVISION,
    ),
    "describe": Tool(
        flags="--tags --all --always --long --exact-match --contains --first-parent --debug",
        takes={NUMBER: "--candidates", WORD: "--match --exclude"},
        joined={NUMBER: "--abbrev", NAME: "--dirty --broken"},
        operands=REVISION,
    ),
    "shortlog": Tool(
        like=(_LOG,),
        flags="-s -n -e --summary --numbered --email",
        takes={WORD: "--group"},
        operands=REVISION,
        least=1,
        why="reads its input, if no revision is given",
    ),
    "grep": Tool(
        flags="""-n -i -w -v -h -H -E -G -P -F -l -L -c -p -W -z -q -o -a -I -r --line-number --ignore-case
        --word-regexp --invert-match --extended-regexp --basic-regexp --perl-regexp --fixed-strings
        --files-with-matches --name-only --files-without-match --count --show-function --function-context --null
        --quiet --only-matching --text --recursive --no-recursive --heading --break --column --full-name --cached
        --untracked --no-index --exclude-standard --no-exclude-standard --recurse-submodules --no-color --all-match
        --and --or --not -NUM""",
        takes={
            TEXT: "-e",
            READ: "-f",
            NUMBER: "-A -B -C -m --after-context --before-context --context --max-depth --max-count --threads",
        },
        joined={WHEN: "--color"},
        traps={"-O --open-files-in-pager": "starts the pager", "--textconv --ext-grep": "starts other programs"},
        lead=(WORD,),
        lead_unless="-e -f",
        operands=REVISION,
    ),
    "merge-base": Tool(flags="-a --all --is-ancestor --fork-point --octopus --independent", operands=REVISION),
    "name-rev": Tool(flags="--tags --name-only --always --no-undefined", takes={WORD: "--refs"}, operands=REVISION),
    "symbolic-ref": Tool(flags="-q --quiet --short", operands=NAME, most=1, traps={"-d --delete -m": _CHANGES}),
    "check-ignore": Tool(flags="-v -n -q --verbose --non-matching --no-index", operands=LOOK),
    "check-attr": Tool(flags="-a --all --cached", operands=LOOK),
    "count-objects": Tool(flags="-v -H --verbose --human-readable"),
    "worktree": Tool(verbs={"list": Tool(flags="-v -z --porcelain --verbose")}),
    "submodule": Tool(flags="--quiet", verbs={"status": Tool(flags="--cached --recursive", operands=LOOK)}, bare=True),
    "version": Tool(flags="--build-options"),
}

GIT = Tool(
    flags="""-P --no-pager --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs
    --icase-pathspecs --no-replace-objects --version -v""",
    takes={MOVE: "-C"},
    traps={
        "-c --config-env": "sets options that may name programs",
        "--exec-path": "moves the place where git finds its programs",
        "--git-dir --work-tree --namespace": "names another repository",
        "-p --paginate": "starts the pager",
        "push pull fetch clone ls-remote": _NETWORK,
        "reset checkout restore clean rm": "may discard work",
        "rebase merge cherry-pick revert switch mv apply am": _CHANGES,
        "gc prune filter-branch filter-repo update-ref": _CHANGES,
        "help": "opens a manual page",
    },
    verbs=_VERBS,
    bare=True,
    bundles=False,
)

PROGRAMS: dict[str, Tool] = {"git": GIT}
