"""Allow rules that would allow everything, allow nothing."""

from __future__ import annotations

import pytest

from bubbles.controller.policy.contract import Layer
from bubbles.controller.policy.rules import bind, parse_rules
from bubbles.controller.policy.rules.carriers import is_carrier, smuggles

BARE = """
bash | bash -l | bash -c | bash -lc | /bin/zsh -lc | sh - | bash -x -c | bash --norc | bash --rcfile x | eval
eval x | source | env | env A=1 | env -i | env -u X | env A=1 B=2 sudo | sudo | sudo -n | sudo -u bob | sudo -n bash
sudo env | doas | nohup | nice | nice -n 5 | time | timeout 60 | timeout -k 5 60 | timeout --foreground 60 bash -c
command | exec | setsid | busybox | xargs | xargs -n 1 | xargs -0 sh -c | xargs -I {} | find -exec | find . -exec
flock x | chroot x | strace -f | taskset -c 1 | python | python3 | python3.12 | /usr/bin/python3 | python3 -
python3 -u | python3 -c | python3 -m | python3 -X dev | pypy3 | node | node -e | node --eval | node -p | node -r x
node -e 1 | perl -e | perl -pe | perl -i -ne | ruby | ruby -e | php -r | lua | awk | gawk -f | awk -F ,
osascript -e | deno eval | deno run -A | bun | bun run | bun -e | tsx | Rscript -e | npx | npx -y | npx -p x
npm exec | npm exec -- | npm x | pnpm dlx | yarn dlx | bunx | uvx | uv run | uv run --with x | pipx run
uv run python | uv run python -c | poetry run | poetry run python | bundle exec | conda run -n x | mise exec --
go run | docker run | docker run -it | docker run --rm img | docker exec -it x | docker compose exec web
podman exec x | kubectl exec x | ssh | ssh host | ssh host uptime | su | su -c | watch | watch ls | parallel
git -c | nix-shell | tmux | script
"""
FINE = """
bash script.sh | sh -c ls | bash -lc true | python3 script.py | python3 -m pytest | python3 -c 1 | python3 -u x.py
node x.js | timeout 60 pytest | env A=1 pytest | sudo systemctl | xargs grep | xargs -n 1 grep -l | npx tsc
npx -y eslint | uv run pytest | uv run -q pytest | uv run python x.py | poetry run pytest | npm run | npm | git
git push | cargo | docker ps | docker | docker exec -it web ls | find | find . -name x | awk {print} | perl x.pl
go test | go | deno test | source x/activate | bun test | make | time make | nice -n 5 make | busybox ls | rg | ls
./run.sh | uv | uv pip list | bundle exec rspec | tar
"""


def split(table: str) -> list[str]:
    return [entry.strip() for line in table.strip().splitlines() for entry in line.split(" | ")]


@pytest.mark.req("DEC-06")
@pytest.mark.parametrize("prefix", split(BARE))
def test_what_follows_would_be_any_program_or_code(prefix: str) -> None:
    assert is_carrier(prefix.split())


@pytest.mark.parametrize("prefix", split(FINE))
def test_what_follows_are_arguments_of_a_known_program(prefix: str) -> None:
    assert not is_carrier(prefix.split())


@pytest.mark.parametrize(
    ("prefix", "further"),
    [
        ("find", ". -name x -exec rm {} ;"),
        ("find .", "-execdir sh"),
        ("fd", "-x rm"),
        ("rg", "--pre=x y"),
        ("git", "-c alias.x=!id x"),
        ("git", "--exec-path=/tmp status"),
        ("git", "-C x -ccore.pager=x log"),
        ("tar", "-xf x --to-command=sh"),
        ("npm", "exec x"),
        ("uv", "run x"),
        ("docker", "run x"),
        ("uv tool", "run x"),
        ("cargo", "--config x run"),
    ],
)
def test_a_rule_does_not_grant_a_program_that_its_program_is_told_to_run(prefix: str, further: str) -> None:
    assert smuggles(prefix.split(), further.split())
    pattern = prefix.split()
    rules = bind(parse_rules(f"prefix_rule(pattern={pattern!r})\n", file="r", layer=Layer.GLOBAL).rules)
    assert rules.allows(pattern)
    assert not rules.allows([*pattern, *further.split()])


@pytest.mark.parametrize(
    ("prefix", "further"),
    [
        ("find", ". -name x -print"),
        ("git", "log -c"),
        ("git commit", "-c HEAD"),
        ("git", "-C x status"),
        ("npm", "run build"),
        ("tar", "-czf x y"),
        ("go", "test ./..."),
        ("find . -exec cat {} ;", "-print"),
        ("ls", "-exec"),
    ],
)
def test_ordinary_arguments_are_granted(prefix: str, further: str) -> None:
    assert not smuggles(prefix.split(), further.split())


def test_a_rule_on_a_bare_carrier_warns_and_grants_nothing() -> None:
    parsed = parse_rules('prefix_rule(pattern=["bash", "-lc"])\n', file="r", layer=Layer.GLOBAL)
    (warning,) = parsed.warnings
    assert warning.line == 1
    assert warning.text.startswith("Nothing is allowed by it: what follows 'bash -lc' may be any program or code.")
    assert not parsed.rules[0].grants
    rules = bind(parsed.rules)
    assert not rules.allows(("bash", "-lc", "id"))
    assert rules.exact_matches(("bash", "-lc", "id"))


def test_of_alternatives_only_the_carriers_grant_nothing() -> None:
    parsed = parse_rules('prefix_rule(pattern=[["env", "ls"]])\n', file="r", layer=Layer.GLOBAL)
    assert [warning.text.partition(":")[0] for warning in parsed.warnings] == [
        "Not everything in this rule is allowed by it"
    ]
    rules = bind(parsed.rules)
    assert rules.allows(("ls", "x"))
    assert not rules.allows(("env", "x"))


def test_a_carrier_among_too_many_combinations_grants_nothing() -> None:
    text = 'prefix_rule(pattern=[["env", "ls"]' + ', ["a", "b"]' * 10 + "])\n"
    parsed = parse_rules(text, file="r", layer=Layer.GLOBAL)
    assert [rule.grants for rule in parsed.rules] == [False]
    assert len(parsed.warnings) == 1


def test_a_script_that_is_a_bare_carrier_is_no_prefix() -> None:
    rules = bind(parse_rules('prefix_rule(pattern=["bash", "-lc", "python3"])\n', file="r", layer=Layer.GLOBAL).rules)
    assert not rules.allows(("python3", "-c", "1"))
    assert rules.script_grants("python3")


def test_a_restriction_on_a_carrier_is_an_ordinary_rule() -> None:
    parsed = parse_rules('prefix_rule(pattern=["sudo"], decision="forbidden")\n', file="r", layer=Layer.GLOBAL)
    assert parsed.warnings == ()
    assert bind(parsed.rules).restrictions(("sudo", "ls"))
