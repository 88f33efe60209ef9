"""Statements of a shell script: commands, conditions, loops, choices and functions, as a tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from cosmic.errors import SpecError
from cosmic.importing.shell_words import HereDocument, Operator, Token, Word, tokens

REDIRECTIONS = ("&>>", "<<<", "<<-", "<<", ">>", ">&", "<&", "&>", ">|", "<", ">")
DEEPEST = 50
"""Statements within statements."""


@dataclass(frozen=True, slots=True)
class Simple:
    """A command with its words, or assignments."""

    words: tuple[Word, ...]
    line: int
    target: Word | None = None
    """The file that its output goes to."""
    document: str | None = None
    """The here-document that it reads."""


@dataclass(frozen=True, slots=True)
class Test:
    """``[[ … ]]``: words and operators."""

    tokens: tuple[Token, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Two statements with ``&&``, ``||`` or ``|`` between them; *negated*, ``!`` stands before the first."""

    first: Statement
    operator: str
    second: Statement


@dataclass(frozen=True, slots=True)
class Negation:
    """A statement behind ``!``."""

    inner: Statement


@dataclass(frozen=True, slots=True)
class Branches:
    """``if``: conditions with their bodies, and what runs if none holds."""

    cases: tuple[tuple[Block, Block], ...]
    otherwise: Block
    line: int


@dataclass(frozen=True, slots=True)
class Choice:
    """``case``: patterns with their bodies."""

    word: Word
    cases: tuple[tuple[tuple[Word, ...], Block], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Loop:
    """``for NAME in WORDS``; without *name*, ``while`` or a loop that counts."""

    body: Block
    line: int
    name: str = ""
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """The definition of a function."""

    name: str
    body: Block


@dataclass(frozen=True, slots=True)
class Group:
    """Statements in braces or parentheses."""

    body: Block


Statement = Simple | Test | Chain | Negation | Branches | Choice | Loop | Function | Group
Block = tuple[Statement, ...]


def parse(text: str, where: str, line: int = 1) -> Block:
    """Return the statements of a script."""
    return _Parser(tokens(text, where, line)[::-1], where).program()


@dataclass(slots=True)
class _Parser:
    rest: list[Token]
    """What is left to read, the next token last."""
    where: str
    depth: int = 0
    line: int = field(default=1)

    def fail(self, rule: str) -> SpecError:
        return SpecError(f"{self.where} line {self.line}", self.shown(), rule)

    def shown(self) -> str:
        token = self.rest[-1] if self.rest else None
        if isinstance(token, Word):
            return "".join(part.text for part in token.parts)
        return token.text.strip() if token is not None else ""

    # ----------------------------------------------------------------------------------------------- reading

    def take(self) -> Token:
        token = self.rest.pop()
        self.line = token.line
        return token

    def word(self) -> str:
        """The next word if it is plain, without taking it."""
        token = self.rest[-1] if self.rest else None
        return token.plain if isinstance(token, Word) else ""

    def operator(self) -> str:
        """The next operator, without taking it."""
        token = self.rest[-1] if self.rest else None
        return token.text if isinstance(token, Operator) else ""

    def skip(self, *operators: str) -> None:
        while self.rest and self.operator() in operators:
            self.take()

    def expect(self, word: str) -> None:
        self.skip("\n", ";")
        if self.word() != word:
            raise self.fail(f"expected '{word}' here")
        self.take()

    def program(self) -> Block:
        found = self.block(())
        if self.rest:
            raise self.fail("closes something that was never opened")
        return found

    def block(self, ends: tuple[str, ...], closing: str = "") -> Block:
        """Return statements up to one of the words *ends* or the operator *closing*, which stays."""
        found: list[Statement] = []
        while True:
            self.skip("\n", ";", "&")
            if not self.rest:
                if ends or closing:
                    raise self.fail(f"ends without {' or '.join(ends) or closing}")
                return tuple(found)
            if self.word() in ends or (closing and self.operator() in (closing, ";;")) or self.operator() == ")":
                return tuple(found)
            if self.operator() == ";;":
                raise self.fail("';;' belongs into a 'case'")
            found.append(self.chain())
            self.check_end(ends)

    def check_end(self, ends: tuple[str, ...]) -> None:
        """Refuse what cannot follow a statement: a parenthesis in the middle of a command, for one."""
        separated = not self.rest or self.operator() in ("\n", ";", "&", ";;", ")") or self.word() in ends
        if not separated:
            raise self.fail("does not belong here: quote it if it is part of an argument")

    def chain(self) -> Statement:
        found = self.statement()
        while self.operator() in ("&&", "||", "|"):
            token = self.take()
            self.skip("\n")
            found = Chain(found, token.text if isinstance(token, Operator) else "", self.statement())
        return found

    def statement(self) -> Statement:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.fail(f"has more than {DEEPEST} levels")
        try:
            return self.one()
        finally:
            self.depth -= 1

    def one(self) -> Statement:
        word = self.word()
        if not self.rest or word in ("then", "elif", "else", "fi", "do", "done", "esac", "in", "}", "]]"):
            raise self.fail("stands where a command should")
        if word == "!":
            self.take()
            return Negation(self.statement())
        if word == "if":
            return self.branches()
        if word == "case":
            return self.choice()
        if word in ("for", "while", "until", "select"):
            return self.loop(word)
        if word == "{" or self.operator() == "(":
            self.take()
            body = self.block(("}",)) if word else self.block((), ")")
            self.take()
            self.redirections()
            return Group(body)
        if word == "[[":
            return self.test()
        if word == "function" or self.defines():
            return self.function()
        if self.operator():
            raise self.fail("is an operator without a command before it")
        return self.simple()

    # -------------------------------------------------------------------------------------------- statements

    def branches(self) -> Branches:
        line = self.take().line
        cases: list[tuple[Block, Block]] = []
        otherwise: Block = ()
        while True:
            condition = self.block(("then",))
            self.expect("then")
            cases.append((condition, self.block(("elif", "else", "fi"))))
            word = self.word()
            self.take()
            if word == "else":
                otherwise = self.block(("fi",))
                self.expect("fi")
            if word != "elif":
                self.redirections()
                return Branches(tuple(cases), otherwise, line)

    def choice(self) -> Choice:
        line = self.take().line
        subject = self.take()
        self.expect("in")
        cases: list[tuple[tuple[Word, ...], Block]] = []
        while True:
            self.skip("\n", ";", ";;", "(")
            if self.word() == "esac" or not self.rest:
                self.expect("esac")
                break
            patterns: list[Word] = []
            while self.rest and self.operator() != ")":
                token = self.take()
                if isinstance(token, Word):
                    patterns.append(token)
            if self.rest:
                self.take()
            cases.append((tuple(patterns), self.block(("esac",), ";;")))
        if not isinstance(subject, Word):
            raise self.fail("'case' needs a word")
        return Choice(subject, tuple(cases), line)

    def loop(self, kind: str) -> Loop:
        line = self.take().line
        name, words = "", list[Word]()
        if kind == "for" and self.word():
            name = self.word()
            self.take()
            self.skip("\n")
            if self.word() == "in":
                self.take()
                while self.rest and isinstance(self.rest[-1], Word):
                    token = self.take()
                    words += [token] if isinstance(token, Word) else []
        elif kind == "for":
            self.take()  # (( … ))
        else:
            self.block(("do",))
        self.expect("do")
        body = self.block(("done",))
        self.expect("done")
        self.redirections()
        return Loop(body, line, name, tuple(words))

    def defines(self) -> bool:
        """Return whether ``NAME ( )`` comes next."""
        brackets = [token.text for token in self.rest[-3:-1] if isinstance(token, Operator)]
        return bool(self.word()) and brackets == [")", "("]

    def function(self) -> Function:
        if self.word() == "function":
            self.take()
        name = self.word()
        self.take()
        self.skip("(", ")", "\n")
        if not self.rest:
            raise self.fail("a function needs a body")
        body = self.statement()
        return Function(name, body.body if isinstance(body, Group) else (body,))

    def test(self) -> Test:
        line = self.take().line
        found: list[Token] = []
        while self.rest and self.word() != "]]":
            found.append(self.take())
        if not self.rest:
            raise self.fail("'[[' is never closed by ']]'")
        self.take()
        return Test(tuple(found), line)

    def simple(self) -> Simple:
        words: list[Word] = []
        target, document = None, None
        line = self.rest[-1].line
        while self.rest:
            token = self.rest[-1]
            if isinstance(token, Word):
                words.append(token)
                self.take()
            elif isinstance(token, Operator) and token.text in REDIRECTIONS:
                wrote, read = self.redirection()
                target, document = wrote or target, document if read is None else read
            else:
                break
        return Simple(tuple(words), line, target, document)

    def redirections(self) -> None:
        while self.operator() in REDIRECTIONS:
            self.redirection()

    def redirection(self) -> tuple[Word | None, str | None]:
        """Return the file that output goes to, or the here-document that is read."""
        sign = self.take()
        following = self.rest[-1] if self.rest else None
        if isinstance(following, HereDocument):
            self.take()
            return None, following.text
        if not isinstance(following, Word):
            raise self.fail("a redirection needs a file")
        self.take()
        return (following if isinstance(sign, Operator) and sign.text in (">", ">>") else None), None
