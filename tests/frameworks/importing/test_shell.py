"""The shell reader: what a script would run, worked out without running anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.frameworks.launch_arguments import parse_arguments
from cosmic.frameworks.shell_expansion import DOUBT, UNKNOWN
from cosmic.frameworks.shell_script import ShellScript, follow_script

LIKE_BASH = [
    "A=1; run $A ${A} \"$A\" '$A'",
    "A='x y'; run $A \"$A\"",
    'A=(1 "2 3" 4); run ${A[@]} "${A[@]}" ${A[1]} ${#A[@]} "${A[*]}"',
    'A=(1); A+=(2 3); run "${A[@]}"',
    'B="a"; B+="b c"; run $B',
    "N=8; M=$((N*2+1)); run $M $((M % 4)) $((2**3)) $((-7/2)) $(( (1+2)*3 )) $((N>4?1:0))",
    "run ${X:-d} ${X:-'e f'} ${X-g} ${X:+h}",
    'X=1; run ${X:-d} ${X:+"h i"}',
    ": ${Y:=5}; run $Y",
    "run a\\ b 'c'\"d\"e # comment\nrun f#g",
    "run a \\\n  b \\\n  c",
    "if [ 1 -eq 1 ]; then run yes; else run no; fi",
    'A=fp8; if [[ "$A" == "fp8" && 3 -gt 2 ]]; then run 1; elif [[ $A == b* ]]; then run 2; else run 3; fi',
    'A=bf16; if [[ "$A" == "fp8" ]] || [[ $A == b* ]]; then run 1; fi',
    "A=3; if (( A > 2 )); then run big; fi",
    "for i in 1 2 3; do run $i; done",
    "case abc in a) run 1;; a*|x) run 2;; *) run 3;; esac",
    "f() { local Z=$1; run $Z; return 0; run never; }\nf 7",
    'A="run 1 2"; $A; eval "$A 3"',
    "true && run 1 || run 2; false && run 3 || run 4",
    '[ -z "" ] && run empty; ! false && run negated',
    "A=abc.tar; run ${A%.tar} ${A#a} ${A^^} ${A##*.}",
    "{ run 1; (run 2); }",
    "A=1 run 2 2>/dev/null | cat",
    'A=""; run $A "$A" x',
    "run \"a'b\" 'a\"b' \"\\$x\" $'q'",
    "if false; then run 1; fi; run 2 & wait",
    "cat <<EOF >/dev/null\nrun 1\nEOF\nrun 2",
    "A=(--x 1 # note\n  # --y 2\n  --z 3)\nrun ${A[@]}",
    "export A=1 B=2; readonly C=3; run $A$B$C",
    'test "a" = "a" -a 1 -lt 2 && run ok',
    "run 1 &>>/dev/stdout; run 2 2> >(cat); run 3 < <(echo x)",
    "bash <<EOF\n:\nEOF\nread -r A B <<< '1 2'; run 4",
    "i=5; run $((i << 2)) $((i != 5)) $((!i)) $((- -i * (2 + 1) % 4)) $((1 - 2 - 3)) $((2 ** 3 ** 1))",
    'run "a \\\n  b" "e \\" f \\x"',
    '[[ ( a == a || b < a ) && ! -z "x" ]] && run 1',
]


def lines(script: ShellScript) -> list[list[str]]:
    return [list(command.words[1:]) for command in script.commands if command.words[0] == "run"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_words_are_those_that_bash_would_run(tmp_path: Path) -> None:
    # Our own snippets, all in one process: the reader itself never starts anything.
    body = "\n".join(f"( {text}\n)\necho ===" for text in LIKE_BASH)
    program = 'run() { printf "%s\\n" "-$#" "$@"; }\n' + body
    ran = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=20)
    for text, shown in zip(LIKE_BASH, ran.stdout.split("===\n"), strict=False):
        rows = shown.splitlines()
        found = []
        while rows:
            count = int(rows.pop(0)[1:])
            found.append([rows.pop(0) for _ in range(count)])
        assert lines(follow_script(text, "a.sh")) == found, text


def unknown(text: str, name: str, **defines: str) -> str:
    """Return what the reader says of the value of an argument."""
    script = follow_script(text, "a.sh", defines)
    arguments = parse_arguments(script.commands[-1].words[1:], "a.sh", script.state.reasons)
    with pytest.raises(SpecError) as caught:
        arguments.words(name)
    return str(caught.value)


def test_a_variable_that_nobody_sets_is_named_where_it_is_needed() -> None:
    assert unknown("run --tp $TP", "--tp") == "a.sh --tp = '$TP': $TP is set nowhere: give --define TP=VALUE"
    assert "$NODES is set nowhere" in unknown("W=$((NODES * 8)); run --world $W", "--world")
    assert "is what $(nproc) prints" in unknown("N=$(nproc); run --n $N", "--n")


@pytest.mark.parametrize("text", ["1 / 0", "2 ** 99", "1 +", "9999999999999999999 * 9", "(" * 60 + "1" + ")" * 60])
def test_arithmetic_that_cannot_be_read_is_unknown(text: str) -> None:
    assert "which cannot be read: it " in unknown(f"run --n $(({text}))", "--n")
    assert lines(follow_script(f"(({text})); ((i++)); run 1", "a.sh")) == [["1"]]


def test_what_is_no_blank_for_a_shell_is_part_of_a_word() -> None:
    assert lines(follow_script("run a\x0bb \x0c", "a.sh")) == [["a\x0bb", "\x0c"]]


def test_what_is_not_needed_may_be_unknown() -> None:
    script = follow_script("run --tp 8 --save $OUT/$1 --host $(hostname)", "a.sh")
    arguments = parse_arguments(script.commands[0].words[1:], "a.sh", script.state.reasons)
    assert arguments.whole("--tp") == 8


def test_a_definition_wins_over_the_script() -> None:
    assert lines(follow_script("TP=8; run $TP", "a.sh", {"TP": "4"})) == [["4"]]
    assert lines(follow_script("N=$(nproc); run $N", "a.sh", {"N": "4"})) == [["4"]]
    assert lines(follow_script('run "${A[@]}"', "a.sh", {"A": "--x 1"})) == [["--x", "1"]]


def test_a_condition_that_only_a_run_would_decide_leaves_what_it_changes_open() -> None:
    text = 'A=(--x 1)\nif [ -n "${KEY}" ]; then A+=(--y 2); fi\nrun "${A[@]}" --z 3'
    script = follow_script(text, "a.sh")
    arguments = parse_arguments(script.commands[0].words[1:], "a.sh", script.state.reasons)
    assert (arguments.whole("--x"), arguments.whole("--z")) == (1, 3)
    assert unknown(text, "--y") == ("a.sh --y = '': $KEY depends on the condition in line 2: give --define KEY=VALUE")
    assert lines(follow_script(text, "a.sh", {"KEY": "k"})) == [["--x", "1", "--y", "2", "--z", "3"]]
    assert "depends on the condition in line 1" in unknown("if docker ps; then T=1; else T=2; fi\nrun --t $T", "--t")
    assert lines(follow_script("if [ ! -f x ]; then exit 1; fi; run 1", "a.sh")) == [["1"]]
    assert unknown("T=1; while read x; do T=2; done; run --t $T", "--t")


def test_scripts_within_scripts_are_read() -> None:
    assert lines(follow_script('C="run --a 1"; srun -N 2 bash -c "cd x; $C"', "a.sh")) == [["--a", "1"]]


def test_files_that_a_script_writes_are_kept() -> None:
    script = follow_script("cat > a.toml <<'END'\nx = $y\nEND\nrun 1", "a.sh")
    assert script.files == {"a.toml": "x = $y\n"}
    assert lines(script) == [["1"]]


@pytest.mark.parametrize(
    "text",
    [
        "A='never closed",
        'A="never closed',
        "A=(1 2",
        "if true; then run 1",
        "case x in a) run 1",
        "for i in 1 2; do run",
        "run ${A",
        "fi",
        "if then run 1; fi",
        "run (1)",
        "&& run",
        "f() { f; }\nf",
        "A=xx; for i in " + " ".join("1" * 40) + "; do A=$A$A; done",
        "A=x\n" * 20_001,
        "((((((" * 100,
        "if true; then " * 100 + "run" + "; fi" * 100,
        "run ${A:-" * 50 + "}" * 50,
        "\ue000",
        "eval " * 30 + "run",
        'B=\'eval "$B"\'; eval "$B"',
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str) -> None:
    with pytest.raises(SpecError):
        follow_script(text, "a.sh")


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was run")

    for name in ("run", "Popen", "call", "check_output"):
        monkeypatch.setattr(subprocess, name, refuse)
    script = follow_script(
        "touch here; $(touch there); `touch x`; eval 'touch y'; rm -rf /; echo > z; run `id`", "a.sh"
    )
    assert list(tmp_path.iterdir()) == []
    assert UNKNOWN.search(script.commands[-1].words[1])


PIECES = [
    *" \n;|&()<>\"'$`\\#{}[]=+-*!",
    "A=",
    "A=(",
    "$A",
    "${A}",
    "${A[@]}",
    "$((A+1))",
    "if ",
    "then ",
    "else ",
    "fi",
]
PIECES += [
    "for i in 1 2; do ",
    "done",
    "case $A in a) ",
    ";; esac",
    "[[ ",
    " ]]",
    "[ -z ",
    " ]",
    "--num-layers 4 ",
    "eval ",
]
PIECES += ["<<E\n", "E\n", "${A:-", "f() { ", "bash -c ", "while ", "&&", "||", "\\\n"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        script = follow_script(text, "a.sh")
    except SpecError:
        return
    for command in script.commands:
        assert all(isinstance(word, str) for word in command.words)


def test_doubt_does_not_change_words() -> None:
    words = [
        DOUBT.sub("", word) for word in follow_script("if x; then A=(--y 1); fi; run ${A[@]}", "a").commands[-1].words
    ]
    assert words == ["run", "--y", "1"]
