"""Read a shell script as far as its text says what would run. Nothing is run, and no other file is read.

    variables     NAME=VALUE, export, declare, local, arrays, +=, ${NAME:-default}, $((NODES * 8))
    conditions    [ … ], [[ … ]] and (( … )) on known values; where they cannot be decided, both ways are followed,
                  and what they disagree on counts as unknown
    loops         for NAME in WORDS; others are passed once, as what may happen
    functions     where they are called
    eval, sh -c   the text is read as a script again

Commands, pipes, other files (source) and the environment are not consulted: a value that comes from there is unknown,
until the user defines it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from cosmic.errors import require
from cosmic.files import read_text
from cosmic.importing.shell_conditions import holds, holds_test
from cosmic.importing.shell_syntax import (
    Block,
    Branches,
    Chain,
    Choice,
    Function,
    Group,
    Loop,
    Negation,
    Simple,
    Statement,
    Test,
    parse,
)
from cosmic.importing.shell_values import MARKS, UNKNOWN, State, Value
from cosmic.importing.shell_words import Word

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
class Command:
    """A command with its words, expanded."""

    words: tuple[str, ...]
    line: int


@dataclass(slots=True)
class Script:
    """What a script would run, and what its variables hold at its end."""

    where: str
    commands: list[Command] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """Here-documents by the file that they are written to."""
    scheduler: tuple[str, ...] = ()
    """Options in lines ``#SBATCH``."""
    sourced: list[str] = field(default_factory=list)
    """Scripts that it reads, and which are not read here."""
    state: State = field(default_factory=lambda: State(""))


class _Exit(Exception):  # noqa: N818  no error: the script ends here
    """The script, or the branch of it that is followed, ends."""


class _Return(_Exit):
    """A function, or the branch of it that is followed, ends."""


def read_script(path: str, where: str, defines: Mapping[str, str] | None = None) -> Script:
    """Return what the script at *path* would run."""
    return script_of(read_text(path, where, LARGEST_BYTES), where, defines)


def script_of(text: str, where: str, defines: Mapping[str, str] | None = None) -> Script:
    """Return what a script would run; *defines* are variables that win over the script's own.

    >>> script_of("TP=8; torchrun train.py --tp ${TP} --dp $((64 / TP))", "a.sh").commands[0].words
    ('torchrun', 'train.py', '--tp', '8', '--dp', '8')
    """
    binary = "\0" in text
    require(not binary, where, text[:20], "is no text: a shell script was expected")
    require(MARKS.search(text) is None, where, "U+E000", "has a character for private use, which no script needs")
    given = dict(defines or {})
    state = State(where, dict(given), frozenset(given))
    found = Script(where, state=state)
    found.scheduler = tuple(word for line in SBATCH.findall(text) for word in line.partition(" #")[0].split())
    _Follower(found, state).run(parse(text.replace("\r\n", "\n"), where))
    return found


class _Follower:
    """Follows statements, with a state that they change."""

    def __init__(self, script: Script, state: State) -> None:
        self.script, self.state = script, state
        self.functions: dict[str, Block] = {}
        self.followed = self.calls = 0

    def run(self, block: Block) -> None:
        """Follow a whole script, up to its end or its exit."""
        with suppress(_Exit):
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
            case Simple():
                return self.simple(statement)
            case Test():
                return holds_test(statement.tokens, self.state)
            case Negation():
                status = self.statement(statement.inner)
                return None if status is None else not status
            case Chain():
                return self.chain(statement)
            case Branches():
                self.branches(statement.cases, statement.otherwise, statement.line)
            case Choice():
                self.choice(statement)
            case Loop():
                self.loop(statement)
            case Function():
                self.functions[statement.name] = statement.body
            case Group():
                return self.block(statement.body)
        return True

    # -------------------------------------------------------------------------------------------- conditions

    def chain(self, chain: Chain) -> bool | None:
        self.state.asked.clear()
        status = self.statement(chain.first)
        if chain.operator == "|":
            return self.statement(chain.second)
        if status is None and not _is_test(chain.first):
            status = True  # a command that is not run here is taken to succeed
        wanted = chain.operator == "&&"
        if status is None:
            self.either([(chain.second,), ()], f"the condition in line {_line(chain.first)}")
            return None
        return self.statement(chain.second) if status is wanted else status

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

    def choice(self, choice: Choice) -> None:
        self.state.asked.clear()
        subject = self.state.text(choice.word)
        if UNKNOWN.search(subject):
            bodies = [body for _, body in choice.cases]
            self.either([*bodies, ()], f"the 'case' in line {choice.line}")
            return
        for patterns, body in choice.cases:
            if any(holds(["[[", subject, "==", self.state.text(pattern), "]]"]) for pattern in patterns):
                self.block(body)
                return

    def either(self, blocks: list[Block], why: str) -> None:
        """Follow several blocks of which one would run; what they leave different is unknown."""
        before, ends = self.state, list[State]()
        asked = next((name for name in before.asked if name), "")
        for block in blocks:
            self.state = before.copy()
            try:
                self.block(block)
            except _Exit:
                continue
            ends.append(self.state)
        self.state = before
        if not ends:
            raise _Exit
        for name in sorted({name for end in ends for name in end.variables}):
            values = [end.variables.get(name) for end in ends]
            if all(value == values[0] for value in values):
                if values[0] is not None:
                    before.variables[name] = values[0]
            else:
                before.variables[name] = _undecided(before, (name, asked or name), values, f"depends on {why}")

    # ------------------------------------------------------------------------------------ loops and functions

    def loop(self, loop: Loop) -> None:
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
            for place, argument in enumerate(arguments[1:10], 1):
                self.state.variables[str(place)] = argument
            return self.block(body)
        except _Return:
            return None
        finally:
            self.calls -= 1

    # ---------------------------------------------------------------------------------------------- commands

    def simple(self, command: Simple) -> bool | None:
        words = list(command.words)
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

    def assigned(self, word: Word) -> bool:
        """Follow a word if it is an assignment, and return whether it is one."""
        first = word.parts[0] if word.parts else None
        match = (
            _ASSIGNMENT.match(first.text) if first is not None and first.kind == "text" and not first.quoted else None
        )
        if match is None or first is None:
            return False
        value: Value
        if word.array is not None:
            value = tuple(text for each in word.array for text in self.state.words(each))
        else:
            rest = first.text[match.end() :]
            value = rest + "".join(map(self.state.text_of, word.parts[1:]))
        self.state.assign(match[1], value, more=bool(match[2]))
        return True

    def command(self, words: list[str], line: int) -> bool | None:
        name = words[0]
        if name in ("[", "test"):
            return holds(words)
        if name in ("true", ":", "false"):
            return name != "false"
        if name in ("exit", "return"):
            raise _Return if name == "return" and self.calls else _Exit
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
        self.script.commands.append(Command(tuple(words), line))
        for place, word in enumerate(words[:-2]):
            if word.rpartition("/")[2] in ("bash", "sh") and re.fullmatch(r"-\w*c", words[place + 1]):
                self.again(words[place + 2], line)

    def again(self, text: str, line: int) -> None:
        """Follow text that a command would hand to a shell."""
        self.calls += 1
        try:
            where = f"{self.script.where} line {line}"
            require(self.calls <= DEEPEST_CALLS, where, text, "has scripts within scripts, too deeply")
            self.block(parse(text, self.script.where, line))
        finally:
            self.calls -= 1


def _is_test(statement: Statement) -> bool:
    """Return whether a statement is a condition, and no command of which only a run would tell the outcome."""
    match statement:
        case Test():
            return True
        case Negation():
            return _is_test(statement.inner)
        case Chain():
            return statement.operator != "|" and _is_test(statement.first) and _is_test(statement.second)
        case Simple():
            first = statement.words[0] if statement.words else None
            return first is not None and (first.plain in ("[", "test", "true", "false") or first.parts[0].text == "((")
        case _:
            return False


def _line(statement: Statement) -> int:
    while isinstance(statement, (Chain, Negation)):
        statement = statement.first if isinstance(statement, Chain) else statement.inner
    return getattr(statement, "line", 0)


def _undecided(state: State, names: tuple[str, str], values: list[Value | None], why: str) -> Value:
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
    options = any(rest and rest[0].startswith("--") for rest in rests)
    if not (listed or options):
        return state.unknown(names[0], why)
    doubtful = [word for rest in rests for word in state.doubtful(rest, names[1], why)]
    return (*shared, *doubtful) if listed else " ".join([*shared, *doubtful])
