"""Read a shell script as far as its text says what would run. Nothing is run, and no other file is read.

    variables     NAME=VALUE, export, declare, local, arrays, +=, ${NAME:-default}, $((NODES * 8))
    conditions    [ … ], [[ … ]] and (( … )) on known values: true, false, or unknown where only a run would tell; where
                  they cannot be decided, both ways are followed, and what they disagree on counts as unknown
    loops         for NAME in WORDS; others are passed once, as what may happen
    functions     where they are called
    eval, sh -c   the text is read as a script again

Commands, pipes, other files (source) and the environment are not consulted: a value that comes from there is unknown,
until the user defines it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from cosmic.base.errors import require
from cosmic.frameworks.shell_expansion import DOUBT, MARKS, UNKNOWN, ShellState, ShellValue
from cosmic.frameworks.shell_syntax import (
    Block,
    CaseStatement,
    CommandChain,
    ForLoop,
    IfStatement,
    Negation,
    ShellFunction,
    ShellWord,
    SimpleCommand,
    Statement,
    StatementGroup,
    parse_statements,
)

_NUMBERS = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
LONGEST_CONDITION_PATTERN = 200


def evaluate_test(words: Sequence[str]) -> bool | None:
    """Return whether a test holds, given its words with the brackets; None if it cannot be decided.

    >>> evaluate_test(["[", "8", "-gt", "4", "-a", "-n", "x", "]"]), evaluate_test(["[[", "fp8", "==", "fp*", "]]"])
    (True, True)
    >>> evaluate_test(["[", "-f", "train.py", "]"]) is None
    True
    """
    inner = list(words[1:])
    if words[0] != "test" and inner and inner[-1] in ("]", "]]"):
        inner.pop()
    return _evaluate_or(inner)


def _evaluate_or(words: list[str], signs: tuple[str, ...] = ("||", "-o"), *, decides: bool = True) -> bool | None:
    """Return whether any of the parts between signs holds; of those with ``&&``, which bind tighter, whether all do."""
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word in signs and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    results = [_evaluate_or(part, ("&&", "-a"), decides=False) if decides else _evaluate_single(part) for part in parts]
    return decides if decides in results else None if None in results else not decides


def _evaluate_single(words: list[str]) -> bool | None:
    if words[:1] == ["!"]:
        result = _evaluate_single(words[1:])
        return None if result is None else not result
    if len(words) > 2 and words[0] == "(" and words[-1] == ")":
        return _evaluate_or(words[1:-1])
    if any(UNKNOWN.search(word) or DOUBT.search(word) for word in words):
        return None
    if len(words) <= 1:
        return bool(words and words[0])
    if len(words) == 2:
        return {"-z": words[1] == "", "-n": words[1] != ""}.get(words[0])
    return _compare(*words) if len(words) == 3 else None


def _compare(first: str, sign: str, second: str) -> bool | None:
    if sign in _NUMBERS:
        are_integers = all(re.fullmatch(r"\s*-?\d{1,18}\s*", side) for side in (first, second))
        return _NUMBERS[sign](int(first), int(second)) if are_integers else None
    if sign in ("=", "==", "!="):
        if len(second) > LONGEST_CONDITION_PATTERN or second.count("*") > 4:
            return None
        return fnmatchcase(first, second) is (sign != "!=")
    if sign in ("<", ">"):
        return first < second if sign == "<" else first > second
    return None


LARGEST_BYTES = 2**18
"""Of a script."""
MOST_STATEMENTS = 20_000
"""Statements that are followed, loops and functions included."""
DEEPEST_CALLS = 10
SBATCH = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(\+?)=", re.DOTALL)
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_SAYS = (
    "echo",
    "printf",
    "mkdir",
    "cd",
    "rm",
    "ls",
    "cp",
    "mv",
    "cat",
    "sleep",
    "set",
    "unset",
    "trap",
    "ulimit",
    "tee",
)


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command with its words, expanded."""

    words: tuple[str, ...]
    line: int


@dataclass(slots=True)
class ShellScript:
    """What a script would run, and what its variables hold at its end."""

    where: str
    commands: list[ShellCommand] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """Here-documents by the file that they are written to."""
    scheduler: tuple[str, ...] = ()
    """Options in lines ``#SBATCH``."""
    sourced: list[str] = field(default_factory=list)
    """Scripts that it reads, and which are not read here."""
    state: ShellState = field(default_factory=lambda: ShellState(""))


class _ScriptExit(Exception):  # noqa: N818  no error: the script ends here
    """The script, or the branch of it that is followed, ends."""


class _FunctionReturn(_ScriptExit):
    """A function, or the branch of it that is followed, ends."""


def follow_script(text: str, where: str, defines: Mapping[str, str] | None = None) -> ShellScript:
    """Return what a script would run; *defines* are variables that win over the script's own.

    >>> follow_script("TP=8; torchrun train.py --tp ${TP} --dp $((64 / TP))", "a.sh").commands[0].words
    ('torchrun', 'train.py', '--tp', '8', '--dp', '8')
    """
    binary = "\0" in text
    require(not binary, where, text[:20], "is no text: a shell script was expected")
    require(MARKS.search(text) is None, where, "U+E000", "has a character for private use, which no script needs")
    variables = dict(defines or {})
    state = ShellState(where, dict(variables), frozenset(variables))
    script = ShellScript(where, state=state)
    script.scheduler = tuple(word for line in SBATCH.findall(text) for word in line.partition(" #")[0].split())
    _ScriptFollower(script, state).run(parse_statements(text.replace("\r\n", "\n"), where))
    return script


class _ScriptFollower:
    """Follows statements, with a state that they change."""

    def __init__(self, script: ShellScript, state: ShellState) -> None:
        self.script, self.state = script, state
        self.functions: dict[str, Block] = {}
        self.followed = self.calls = 0

    def run(self, block: Block) -> None:
        """Follow a whole script, up to its end or its exit."""
        with suppress(_ScriptExit):
            self.block(block)
        self.script.state = self.state

    def block(self, block: Block) -> bool | None:
        status: bool | None = True
        for statement in block:
            status = self.statement(statement)
        return status

    def statement(self, statement: Statement) -> bool | None:
        """Follow a statement, and return whether it succeeds: None where only a run would tell."""
        self.followed += 1
        require(self.followed <= MOST_STATEMENTS, self.script.where, self.followed, "has too many statements to follow")
        match statement:
            case SimpleCommand():
                return self.simple(statement)
            case Negation():
                status = self.statement(statement.inner)
                return None if status is None else not status
            case CommandChain():
                return self.chain(statement)
            case IfStatement():
                self.branches(statement.cases, statement.otherwise, statement.line)
            case CaseStatement():
                self.choice(statement)
            case ForLoop():
                self.loop(statement)
            case ShellFunction():
                self.functions[statement.name] = statement.body
            case StatementGroup():
                return self.block(statement.body)
        return True

    # -------------------------------------------------------------------------------------------- conditions

    def chain(self, chain: CommandChain) -> bool | None:
        self.state.asked.clear()
        status = self.statement(chain.first)
        if chain.operator == "|":
            return self.statement(chain.second)
        if status is None and not _is_test(chain.first):
            status = True  # a command that is not run here is taken to succeed
        runs_if = chain.operator == "&&"
        if status is None:
            self.either([(chain.second,), ()], f"the condition in line {_statement_line(chain.first)}")
            return None
        return self.statement(chain.second) if status is runs_if else status

    def branches(self, cases: tuple[tuple[Block, Block], ...], otherwise: Block, line: int) -> None:
        open_ends: list[Block] = []
        self.state.asked.clear()
        for condition, body in cases:
            status = self.block(condition)
            if status is True and _is_test(condition[-1]):
                open_ends.append(body)
                break
            if status is not False:
                open_ends.append(body)
        else:
            open_ends.append(otherwise)
        if len(open_ends) == 1:
            self.block(open_ends[0])
        else:
            self.either(open_ends, f"the condition in line {line}")

    def choice(self, choice: CaseStatement) -> None:
        self.state.asked.clear()
        subject = self.state.text(choice.word)
        if UNKNOWN.search(subject):
            bodies = [body for _, body in choice.cases]
            self.either([*bodies, ()], f"the 'case' in line {choice.line}")
            return
        for patterns, body in choice.cases:
            if any(evaluate_test(["[[", subject, "==", self.state.text(pattern), "]]"]) for pattern in patterns):
                self.block(body)
                return

    def either(self, blocks: list[Block], why: str) -> None:
        """Follow several blocks of which one would run; what they leave different is unknown."""
        state_before, ends = self.state, list[ShellState]()
        requested_name = next((name for name in state_before.asked if name), "")
        for block in blocks:
            self.state = state_before.copy()
            try:
                self.block(block)
            except _ScriptExit:
                continue
            ends.append(self.state)
        self.state = state_before
        if not ends:
            raise _ScriptExit
        for name in sorted({name for end in ends for name in end.variables}):
            values = [end.variables.get(name) for end in ends]
            if all(value == values[0] for value in values):
                if values[0] is not None:
                    state_before.variables[name] = values[0]
            else:
                state_before.variables[name] = _merge_undecided(
                    state_before, (name, requested_name or name), values, f"depends on {why}"
                )

    # ------------------------------------------------------------------------------------ loops and functions

    def loop(self, loop: ForLoop) -> None:
        words = [text for word in loop.words for text in self.state.words(word)]
        if not loop.name or any(UNKNOWN.search(word) for word in words):
            self.either([loop.body, ()], f"the loop in line {loop.line}")
            return
        for word in words:
            self.state.assign(loop.name, word)
            self.block(loop.body)

    def call(self, body: Block, arguments: list[str], line: int) -> bool | None:
        self.calls += 1
        require(
            self.calls <= DEEPEST_CALLS, f"{self.script.where} line {line}", self.calls, "functions call too deeply"
        )
        try:
            for index, argument in enumerate(arguments[1:10], 1):
                self.state.variables[str(index)] = argument
            return self.block(body)
        except _FunctionReturn:
            return None
        finally:
            self.calls -= 1

    # ---------------------------------------------------------------------------------------------- commands

    def simple(self, command: SimpleCommand) -> bool | None:
        words = list(command.words)
        if words and words[0].plain == "[[":
            return evaluate_test([*map(self.state.text, words), "]]"])
        if words and words[0].plain in _DECLARES:
            words = [word for word in words[1:] if not word.plain.startswith("-") or "=" in word.plain]
            for word in words:
                self.assigned(word)
            return True
        while words and self.assigned(words[0]):
            words.pop(0)
        if not words:
            return True
        first = words[0].parts[0].text if words[0].parts else ""
        if first == "((" and len(words[0].parts) == 2:
            value = self.state.arithmetic(words[0].parts[1].text)
            return None if UNKNOWN.search(value) else value != "0"
        expanded = [text for word in words for text in self.state.words(word)]
        if command.document is not None and command.target is not None:
            self.script.files[self.state.text(command.target)] = command.document
        if command.document is not None and expanded and expanded[0] in ("bash", "sh", "sbatch"):
            self.again(command.document, command.line)
        return self.command(expanded, command.line) if expanded else True

    def assigned(self, word: ShellWord) -> bool:
        """Follow a word if it is an assignment, and return whether it is one."""
        first = word.parts[0] if word.parts else None
        match = (
            _ASSIGNMENT.match(first.text) if first is not None and first.kind == "text" and not first.quoted else None
        )
        if match is None or first is None:
            return False
        value: ShellValue
        if word.array is not None:
            value = tuple(text for word_text in word.array for text in self.state.words(word_text))
        else:
            value_text = first.text[match.end() :]
            value = value_text + "".join(map(self.state.text_of, word.parts[1:]))
        self.state.assign(match[1], value, append=bool(match[2]))
        return True

    def command(self, words: list[str], line: int) -> bool | None:
        name = words[0]
        if name in ("[", "test"):
            return evaluate_test(words)
        if name in ("true", ":", "false"):
            return name != "false"
        if name in ("exit", "return"):
            raise _FunctionReturn if name == "return" and self.calls else _ScriptExit
        if name in self.functions:
            return self.call(self.functions[name], words, line)
        if name in ("source", "."):
            self.script.sourced += words[1:2]
        elif name == "eval":
            self.again(" ".join(words[1:]), line)
        elif name not in _SAYS:
            self.program(words, line)
        return None

    def program(self, words: list[str], line: int) -> None:
        """Note a command that would run a program, and follow a script that it hands to a shell."""
        self.script.commands.append(ShellCommand(tuple(words), line))
        for index, word in enumerate(words[:-2]):
            if word.rpartition("/")[2] in ("bash", "sh") and re.fullmatch(r"-\w*c", words[index + 1]):
                self.again(words[index + 2], line)

    def again(self, text: str, line: int) -> None:
        """Follow text that a command would hand to a shell."""
        self.calls += 1
        try:
            location = f"{self.script.where} line {line}"
            require(self.calls <= DEEPEST_CALLS, location, text, "has scripts within scripts, too deeply")
            self.block(parse_statements(text, self.script.where, line))
        finally:
            self.calls -= 1


def _is_test(statement: Statement) -> bool:
    """Return whether a statement is a condition, and no command of which only a run would tell the outcome."""
    match statement:
        case Negation():
            return _is_test(statement.inner)
        case CommandChain():
            return statement.operator != "|" and _is_test(statement.first) and _is_test(statement.second)
        case SimpleCommand():
            first = statement.words[0] if statement.words else None
            return first is not None and (
                first.plain in ("[", "[[", "test", "true", "false") or first.parts[0].text == "(("
            )
        case _:
            return False


def _statement_line(statement: Statement) -> int:
    while isinstance(statement, (CommandChain, Negation)):
        statement = statement.first if isinstance(statement, CommandChain) else statement.inner
    return getattr(statement, "line", 0)


def _merge_undecided(
    state: ShellState, names: tuple[str, str], values: list[ShellValue | None], why: str
) -> ShellValue:
    """Return a variable on whose value branches disagree: words that only some add are doubtful, others unknown.

    *names* are the variable's own, and that of one which would decide.
    """
    lists = [value.split() if isinstance(value, str) else list(value or ()) for value in values]
    shared: list[str] = []
    for row in zip(*lists, strict=False):
        if any(word != row[0] for word in row):
            break
        shared.append(row[0])
    rests = [words[len(shared) :] for words in lists]
    listed = any(isinstance(value, tuple) for value in values)
    options = any(branch_words and branch_words[0].startswith("--") for branch_words in rests)
    if not (listed or options):
        return state.unknown(names[0], why)
    doubtful = [word for branch_words in rests for word in state.doubtful(branch_words, names[1], why)]
    return (*shared, *doubtful) if listed else " ".join([*shared, *doubtful])
