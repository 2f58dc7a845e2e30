"""Random scripts of harmless parts with one forbidden command in them, and the rules under which they are tried.

Every planted command is allowed by a rule or by the lane: only the blacklist or a restrictive rule stands against it,
so a wrapper, separator or quoting that hides it would let it run.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hypothesis import strategies as st

SAFE = (
    "git status",
    "git diff --stat",
    "pytest -q tests",
    "cargo check",
    "ls -la src",
    "cat README.md",
    "grep -rn TODO src",
    "echo done",
    "cd sub",
    "true",
    "sed -n '1,20p' src/app.py",
    "wc -l src/app.py",
)
JOINS = ("; ", " && ", " || ", "\n", " | ", " |& ", " & ", ";\n", "&&\n")
ALLOWED_PROGRAMS = (
    "rm dd mkfs.ext4 chmod chown shutdown shred sudo crontab git terraform kubectl npm make go find truncate wipefs"
).split()
RULES = (
    "\n".join(f'prefix_rule(pattern=["{name}"], decision="allow")' for name in ALLOWED_PROGRAMS)
    + """
prefix_rule(pattern=["terraform", "destroy"], decision="forbidden", justification="never from here")
prefix_rule(pattern=["kubectl", "delete"], decision="prompt")
prefix_rule(pattern=["npm", "publish"], decision="forbidden")
prefix_rule(pattern=["git", ["push", "rebase"]], decision="forbidden")
prefix_rule(pattern=["make", "test"], decision="prompt")
prefix_rule(pattern=["go", "vet"], decision="forbidden")
"""
)
PLANTED = (
    ("rm", "-rf", "/"),
    ("rm", "-r", "-f", "/etc"),
    ("rm", "-fr", "--no-preserve-root", "/"),
    ("rm", "--recursive", "--force", "/home/agent"),
    ("dd", "if=/dev/zero", "of=/dev/sda"),
    ("mkfs.ext4", "/dev/sda1"),
    ("chmod", "-R", "777", "/"),
    ("chown", "-R", "nobody", "/"),
    ("shutdown", "-h", "now"),
    ("shred", "-u", "/home/agent/.ssh/id_ed25519"),
    ("sudo", "-n", "id"),
    ("crontab", "-r"),
    ("git", "push", "--force", "origin", "main"),
    ("find", "/", "-delete"),
    ("wipefs", "-a", "/dev/sda"),
    ("terraform", "destroy", "-auto-approve"),
    ("kubectl", "delete", "ns", "prod"),
    ("npm", "publish"),
    ("git", "push"),
    ("git", "-C", "sub", "rebase", "main"),
    ("make", "test"),
    ("go", "vet", "./..."),
)
BEFORE = (
    *(
        "sudo ",
        "sudo -n -u root ",
        "env ",
        "env A=1 ",
        "env -i ",
        "timeout 5 ",
        "timeout -k 1 5s ",
        "nice -n 5 ",
        "nohup ",
    ),
    *(
        "time ",
        "time -p ",
        "time A=1 ",
        "command ",
        "exec ",
        "builtin exec ",
        "setsid ",
        "stdbuf -oL ",
        "ionice -c 3 ",
        "xargs ",
    ),
    *(
        "xargs -n 1 ",
        "xargs -I{} ",
        "echo x | xargs ",
        "A=1 ",
        "A=1 B='2 3' ",
        "! ",
        "2>&1 ",
        ">/dev/null ",
        "<README.md ",
    ),
    *(
        "find . -exec ",
        "watch -n 1 ",
        "doas ",
        "flock x.lock ",
        "chroot / ",
        "unshare -r ",
        "strace -f ",
        "parallel ::: ",
    ),
)
"""What a simple command may follow."""
AFTER = ("", " 2>&1", " >/dev/null", " > out.txt 2>&1", " </dev/null", " >> log.txt", " 2>/dev/null", " &", " <<<x")
AROUND = (
    *(
        "({})",
        "( {} )",
        "{{ {}; }}",
        "{{\n{}\n}}",
        "if true; then {}; fi",
        "if {}; then :; fi",
        "if ! true; then :; else {}; fi",
    ),
    *("for i in 1 2; do {}; done", "while true; do {}; break; done", "until {}; do :; done", "case x in x) {};; esac"),
    *(
        "case x in\n*) {}\n;;\nesac",
        "f() {{ {}; }}; f",
        "function f {{\n{}\n}}\nf",
        "f() ( {} )\nf",
        "$({})",
        "echo $({})",
    ),
    *('echo "$({})"', 'git commit -m "$({})"', "cat <({})", "A=$({})", 'A="$({})" git status', "git status > >({})"),
    *(
        "cat <<EOF\n$({})\nEOF",
        '[ -n "$({})" ]',
        "[[ $({}) ]]",
        "(( $({}) ))",
        "echo $((1 + $({})))",
        "echo ${{A:-$({})}}",
    ),
    *(
        "coproc {}",
        "{} & wait",
        "true && {}",
        "false || {}",
        "time {{ {}; }}",
        "! {{ {}; }}",
        "# note\n{}",
        "{} # note",
    ),
    *("true;{}", "true&&{}", "true\n{}", "cd sub && {}", "set -e; {}", "echo {{a,b}}; {}", "cat <<'EOF'\nx\nEOF\n{}"),
    *(
        "select x in 1; do {}; break; done",
        "for ((;;)); do {}; done",
        "echo x | {{ {}; }}",
        "{{ {}; }} | cat",
        "x=1 && {}",
    ),
)
AS_TEXT = (
    *("bash -c {}", "sh -c {}", "bash -lc {}", "/bin/sh -c {}", "zsh -c {}", "dash -ec {}", "eval {}", "bash <<< {}"),
    *("echo {} | sh", "printf %s {} | bash", "trap {} EXIT", "env bash -c {}", "timeout 9 sh -c {}", "xargs sh -c {}"),
    *(
        "find . -exec sh -c {} ';'",
        "sudo sh -c {}",
        "nohup bash -c {} &",
        "ssh host {}",
        "su -c {}",
        "script -c {} log",
    ),
    *("watch {}", 'A={}; eval "$A"', 'A={}; bash -c "$A"', "python3 -c 'import os; os.system(\"x\")'; eval {}"),
)


def quoted(draw: st.DrawFn, word: str) -> str:
    """``word`` in some spelling that bash reads as it."""
    if not word.isascii() or draw(st.booleans()):
        return word if shlex.quote(word) == word else shlex.quote(word)
    cut = draw(st.integers(0, len(word)))
    head, tail = word[:cut], word[cut:]
    return draw(
        st.sampled_from(
            (
                f"'{word}'",
                f'"{word}"',
                f"{shlex.quote(head)}{shlex.quote(tail)}",
                f"\\{word}",
                f'""{shlex.quote(word)}',
                "$'" + "".join(f"\\x{ord(sign):02x}" for sign in word) + "'",
                "$'" + "".join(f"\\{ord(sign):03o}" for sign in head) + "'" + shlex.quote(tail),
                f"{shlex.quote(head)}\\\n{shlex.quote(tail)}" if head and tail else word,
            )
        )
    )


def simple(draw: st.DrawFn, argv: Sequence[str]) -> str:
    name, *rest = argv
    if draw(st.integers(0, 5)) == 0:
        name = f"/usr/bin/{name}"
    gap = draw(st.sampled_from((" ", "  ", "\t", " \\\n ")))
    text = gap.join(quoted(draw, word) for word in (name, *rest))
    if draw(st.integers(0, 7)) == 0:
        text = f"A={shlex.quote(name)}; $A {gap.join(shlex.quote(word) for word in rest)}"
    for _ in range(draw(st.integers(0, 2)) if not text.startswith("A=") else 0):
        text = draw(st.sampled_from(BEFORE)) + text
    return text + draw(st.sampled_from(AFTER))


@st.composite
def hiding_scripts(draw: st.DrawFn) -> str:
    """A script with a planted command somewhere in it."""
    text = simple(draw, draw(st.sampled_from(PLANTED)))
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.integers(0, 3)) == 0:
            text = draw(st.sampled_from(AS_TEXT)).format(shlex.quote(text))
        else:
            text = draw(st.sampled_from(AROUND)).format(text)
    parts = [draw(st.sampled_from(SAFE)) for _ in range(draw(st.integers(0, 3)))]
    parts.insert(draw(st.integers(0, len(parts))), text)
    script = parts[0]
    for part in parts[1:]:
        # After a here-document or a comment only a new line begins a command.
        join = draw(st.sampled_from(JOINS))
        script += ("\n" if "EOF" in script or "# note" in script or script.rstrip().endswith("&") else join) + part
    return script
