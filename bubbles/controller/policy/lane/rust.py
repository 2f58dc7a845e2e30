"""Rust."""

from __future__ import annotations

from bubbles.controller.policy.lane.kinds import FOLDER, NAME, NUMBER, OWN, WHEN, WORD, matching, one_of
from bubbles.controller.policy.lane.table import Tool

_REWRITES = "rewrites files"


_TRIPLE = matching(r"[a-z0-9_]+(?:-[a-z0-9_.]+){1,3}|all", "a target triple")
_LINT = matching(r"[\w:-]+", "the name of a lint")
_LINTS = Tool(
    takes={_LINT: "-D -W -A -F --deny --warn --allow --forbid", one_of("warn allow deny"): "--cap-lints"},
    bundles=False,
    glued="-D -W -A -F",
)
_LIBTEST = Tool(
    flags="""--nocapture --no-capture --exact --ignored --include-ignored --list -q --quiet --show-output --test
    --bench --report-time --shuffle --exclude-should-panic --force-run-in-process --ensure-time""",
    takes={
        NUMBER: "--test-threads --shuffle-seed",
        WORD: "--skip",
        one_of("pretty terse json junit"): "--format",
        WHEN: "--color",
    },
    traps={"--logfile": "writes a file", "-Z": "turns on what is unstable"},
    operands=NAME,
)
_CARGO = Tool(
    flags="""-q -v -vv -r --quiet --verbose --release --workspace --all --all-targets --all-features
    --no-default-features --lib --bins --tests --benches --examples --offline --locked --frozen --keep-going
    --future-incompat-report --ignore-rust-version --no-run --no-fail-fast --doc --no-deps --help -h""",
    takes={
        NAME: "-p --package --exclude --profile --message-format",
        matching(r"[\w,/ +-]+", "a list of features"): "-F --features",
        NUMBER: "-j --jobs",
        WHEN: "--color",
        OWN: "--manifest-path",
        FOLDER: "--target-dir",
    },
    last={NAME: "--bin --example --test --bench", _TRIPLE: "--target"},
    traps={
        "--config": "can set a program that runs what is built",
        "-Z": "turns on what is unstable",
        "--fix": _REWRITES,
        "--open": "opens a browser",
        "--artifact-dir --out-dir": "writes where it is told",
    },
)
_NEXTEST = Tool(
    like=(_CARGO,),
    flags="--no-capture --nocapture --fail-fast --hide-progress-bar",
    takes={
        WORD: "-E --filterset --filter-expr",
        NUMBER: "--retries -j --test-threads",
        NAME: "-P --profile --cargo-profile --partition",
        one_of(
            "all immediate final never fail pass skip slow retry none"
        ): "--status-level --final-status-level --failure-output --success-output",
        one_of("default ignored-only only all"): "--run-ignored",
        one_of("pass warn fail"): "--no-tests",
    },
    operands=NAME,
    after=_LIBTEST,
)
_RUSTFMT = Tool(flags="--check -l", takes={WHEN: "--color"}, needs="--check", why=f"{_REWRITES} without --check")
CARGO = Tool(
    flags="--version -V -vV -h --help --list -q -v --quiet --verbose --offline --locked --frozen",
    verbs={
        "test bench": Tool(like=(_CARGO,), operands=NAME, after=_LIBTEST),
        "check build doc rustdoc": _CARGO,
        "clippy": Tool(like=(_CARGO,), after=_LINTS),
        "fmt": Tool(
            flags="--check --all -q -v --quiet --verbose",
            takes={NAME: "-p --package", OWN: "--manifest-path"},
            after=_RUSTFMT,
            needs="--check",
            why=f"{_REWRITES} without --check",
        ),
        "tree": Tool(
            like=(_CARGO,),
            flags="-d --duplicates --no-dedupe",
            takes={
                NAME: "-e --edges --prune --prefix --charset",
                WORD: "-f --format",
                matching(r"\d+|workspace", "a depth"): "--depth",
            },
            last={NAME: "-i --invert"},
        ),
        "metadata": Tool(like=(_CARGO,), takes={NUMBER: "--format-version", _TRIPLE: "--filter-platform"}),
        "nextest": Tool(verbs={"run list": _NEXTEST}, traps={"archive self": "installs or writes files"}),
        "locate-project pkgid verify-project read-manifest": Tool(like=(_CARGO,), operands=NAME),
        "version": Tool(flags="-v --verbose"),
    },
    traps={
        "run r": "runs the project's program",
        "install uninstall add remove update fetch": "changes what is installed or used",
        "publish login owner yank": "reaches the registry",
        "fix": _REWRITES,
        "clean": "deletes files",
        "+nightly +stable +beta": "names a toolchain, which may be downloaded",
    },
    bare=True,
)


PROGRAMS: dict[str, Tool] = {
    "cargo": CARGO,
    "rustfmt": Tool(
        flags="--check -q -v -l",
        takes={NUMBER: "--edition", WHEN: "--color"},
        needs="--check",
        why=f"{_REWRITES} without --check",
        operands=OWN,
    ),
}
