"""Words and statements of a shell script, as a tree.

The lexer knows quotes, comments, continued lines, arrays and here-documents; the parser commands, conditions, loops,
choices and functions. Nothing is expanded here, and nothing is ever run: a word is a row of parts, of which
`cosmic.frameworks.shell_expansion` makes text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from cosmic.base.errors import SpecError

PartKind = Literal["text", "variable", "arithmetic", "command"]
_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n|#[^\n]*)*")
_OPERATOR = re.compile(r"&>>|<<<|<<-|&&|\|\||;;|<<|>>|>&|<&|&>|>\||[;|&<>()\n]")
_PLAIN = re.compile(r"[^ \t\r\n\\'\"$`;|&<>()]+")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_DESCRIPTOR = re.compile(r"(?:\d+(?=[<>]))?")
_UNESCAPED = re.compile(r"[^\"\\$`]+")
_ESCAPED = re.compile(r"\\[\"\\$`\n]")


@dataclass(frozen=True, slots=True)
class WordPart:
    """A piece of a word: text, or something to be expanded."""

    kind: PartKind
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class ShellWord:
    """A word of a command, or ``NAME=( … )`` with the words of the array."""

    parts: tuple[WordPart, ...]
    line: int
    array: tuple[ShellWord, ...] | None = None

    @property
    def plain(self) -> str:
        """The text of a word without quotes and expansions; nothing otherwise."""
        bare = len(self.parts) == 1 and self.parts[0].kind == "text" and not self.parts[0].quoted
        return self.parts[0].text if bare and self.array is None else ""


@dataclass(frozen=True, slots=True)
class ShellOperator:
    """What stands between words: ``;``, ``&&``, the end of a line, a redirection."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class HereDocument:
    """The lines of a here-document, in place of the word that ends it."""

    text: str
    line: int


ShellToken = ShellWord | ShellOperator | HereDocument


def tokenize(text: str, where: str, line: int = 1) -> list[ShellToken]:
    """Return the tokens of a script.

    >>> [type(each).__name__ for each in tokenize("A=(1 2) # two", "a.sh")]
    ['ShellWord', 'ShellOperator']
    """
    return _Lexer(text, where, line).all()


def quoted_parts(text: str, where: str) -> tuple[WordPart, ...]:
    """Return the parts of *text* as within double quotes."""
    lexer = _Lexer(text, where, 1)
    return tuple(lexer.quoted(until=""))


class _Lexer:
    def __init__(self, text: str, where: str, line: int) -> None:
        self.text, self.where, self.line, self.at = text, where, line, 0

    def all(self) -> list[ShellToken]:
        tokens: list[ShellToken] = []
        while (token := self.next(tokens)) is not None:
            tokens.append(token)
        return [*tokens, ShellOperator("\n", self.line)]

    def fail(self, rule: str) -> SpecError:
        lines = self.text.splitlines()
        shown = lines[min(self.line, len(lines)) - 1].strip() if lines else ""
        return SpecError(f"{self.where} line {self.line}", shown, rule)

    def take(self, end: int) -> str:
        """Return the text up to *end*, and go there."""
        content = self.text[self.at : end]
        self.line += content.count("\n")
        self.at = end
        return content

    def take_match(self, pattern: re.Pattern[str]) -> str:
        """Return what of the text here a pattern matches, nothing if it does not, and go behind it."""
        match = pattern.match(self.text, self.at)
        return self.take(match.end()) if match else ""

    # -------------------------------------------------------------------------------------------------- tokens

    def next(self, previous_tokens: list[ShellToken]) -> ShellToken | None:
        """Return the next token; None at the end."""
        self.take_match(_BLANK)
        self.take_match(_DESCRIPTOR)  # 2>&1
        line, last = self.line, previous_tokens[-1] if previous_tokens else None
        if self.at >= len(self.text):
            return None
        if self.text.startswith("((", self.at) and _begins_command(last):
            self.take(self.at + 2)
            return ShellWord((WordPart("text", "(("), WordPart("arithmetic", self.balanced("(", "))"))), line)
        if self.text.startswith(("<(", ">("), self.at):  # the output of a command, or its input, as a file
            self.take(self.at + 2)
            return ShellWord((WordPart("command", self.balanced("(", ")")),), line)
        if operator := self.take_match(_OPERATOR):
            return ShellOperator(operator, line)
        if isinstance(last, ShellOperator) and last.text in ("<<", "<<-"):
            return self.here_document(tabs=last.text == "<<-")
        return self.word()

    def here_document(self, *, tabs: bool) -> HereDocument:
        """Return the document that the next word ends, and cut it out of the text."""
        line = self.line
        mark = "".join(part.text for part in self.word().parts)
        start = self.text.find("\n", self.at) + 1 or len(self.text)
        position, rows = start, []
        while position < len(self.text):
            end = self.text.find("\n", position)
            end = len(self.text) if end < 0 else end
            row = self.text[position:end].lstrip("\t") if tabs else self.text[position:end]
            position = end + 1
            if row == mark:
                break
            rows.append(row)
        # Lines after a here-document keep their numbers: it leaves its line ends as continued lines.
        self.text = self.text[: max(start - 1, 0)] + "\\\n" * (len(rows) + 1) + "\n" + self.text[position:]
        return HereDocument("".join(f"{row}\n" for row in rows), line)

    def word(self) -> ShellWord:
        line, parts = self.line, list[WordPart]()
        while self.at < len(self.text):
            letter = self.text[self.at]
            if plain := self.take_match(_PLAIN):
                parts.append(WordPart("text", plain))
            elif letter == "(" and len(parts) == 1 and _ARRAY.fullmatch(parts[0].text):
                return ShellWord(tuple(parts), line, self.array())
            elif letter == "\\":
                escaped = self.take(self.at + 2)[1:]
                parts += [WordPart("text", escaped, quoted=True)] if escaped != "\n" else []
            elif letter in "'\"$`":
                parts += self.quote_or_expansion(letter)
            else:
                break
        return ShellWord(tuple(parts), line)

    def array(self) -> tuple[ShellWord, ...]:
        self.at += 1
        words: list[ShellWord] = []
        while True:
            token = self.next([])
            if token is None:
                raise self.fail("an array is never closed by ')'")
            if isinstance(token, ShellWord):
                words.append(token)
            elif isinstance(token, ShellOperator) and token.text == ")":
                return tuple(words)
            elif not (isinstance(token, ShellOperator) and token.text == "\n"):
                raise self.fail("an array holds words only")

    # ---------------------------------------------------------------------------------- quotes and expansions

    def quote_or_expansion(self, letter: str) -> list[WordPart]:
        if letter == "'":
            return [WordPart("text", self.until("'"), quoted=True)]
        if letter == '"':
            self.at += 1
            return self.quoted(until='"') or [WordPart("text", "", quoted=True)]
        return self.expansion(quoted=False)

    def until(self, end: str) -> str:
        """Return the text up to the next *end* behind the letter here, and go behind it."""
        close = self.text.find(end, self.at + 1)
        if close < 0:
            raise self.fail(f"a quote is never closed by {end}")
        return self.take(close + 1)[1:-1]

    def quoted(self, until: str) -> list[WordPart]:
        """Return the parts of what stands in double quotes."""
        parts, letters = list[WordPart](), ""
        while self.at < len(self.text) and self.text[self.at] != until:
            if self.text[self.at] not in "$`":
                taken = self.take_match(_UNESCAPED) or self.take_match(_ESCAPED) or self.take(self.at + 1)
                letters += taken[1:].replace("\n", "") if _ESCAPED.fullmatch(taken) else taken
                continue
            parts += [WordPart("text", letters, quoted=True)] if letters else []
            parts, letters = parts + self.expansion(quoted=True), ""
        if until and self.at >= len(self.text):
            raise self.fail("a quote is never closed")
        self.take(self.at + len(until))
        return parts + ([WordPart("text", letters, quoted=True)] if letters else [])

    def expansion(self, *, quoted: bool) -> list[WordPart]:
        """Return what ``$`` or a backtick begins."""
        if self.text[self.at] == "`":
            return [WordPart("command", self.until("`"), quoted)]
        kinds: tuple[tuple[str, PartKind, str, str], ...] = (
            ("$((", "arithmetic", "(", "))"),
            ("$(", "command", "(", ")"),
            ("${", "variable", "{", "}"),
        )
        for begins, kind, opening, closing in kinds:
            if self.text.startswith(begins, self.at):
                self.take(self.at + len(begins))
                return [WordPart(kind, self.balanced(opening, closing), quoted)]
        self.take(self.at + 1)
        letter = self.text[self.at : self.at + 1]
        if letter in ("'", '"') and not quoted:
            return self.quote_or_expansion(letter)
        name = self.take_match(_NAME)
        return [WordPart("variable", name, quoted)] if name else [WordPart("text", "$", quoted)]

    def balanced(self, opening: str, closing: str) -> str:
        """Return the text up to *closing*, over pairs of *opening* and its counterpart, and go behind it."""
        end, depth, quote = self.at, 0, ""
        while end < len(self.text):
            letter = self.text[end]
            if letter == "\\":
                end += 1
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            elif depth == 0 and self.text.startswith(closing, end):
                content = self.take(end)
                self.take(end + len(closing))
                return content
            else:
                depth += (letter == opening) - (letter == closing[0])
            end += 1
        raise self.fail(f"an expansion is never closed by {closing}")


def _begins_command(last: ShellToken | None) -> bool:
    if isinstance(last, ShellWord):
        return last.plain in ("if", "elif", "while", "until", "then", "do", "else", "!", "for")
    return not isinstance(last, ShellOperator) or last.text in ("\n", ";", "&&", "||")


REDIRECTIONS = ("&>>", "<<<", "<<-", "<<", ">>", ">&", "<&", "&>", ">|", "<", ">")
DEEPEST = 50
"""Statements within statements."""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A command with its words, or assignments."""

    words: tuple[ShellWord, ...]
    line: int
    target: ShellWord | None = None
    """The file that its output goes to."""
    document: str | None = None
    """The here-document that it reads."""


@dataclass(frozen=True, slots=True)
class CommandChain:
    """Two statements with ``&&``, ``||`` or ``|`` between them; *negated*, ``!`` stands before the first."""

    first: Statement
    operator: str
    second: Statement


@dataclass(frozen=True, slots=True)
class Negation:
    """A statement behind ``!``."""

    inner: Statement


@dataclass(frozen=True, slots=True)
class IfStatement:
    """``if``: conditions with their bodies, and what runs if none holds."""

    cases: tuple[tuple[Block, Block], ...]
    otherwise: Block
    line: int


@dataclass(frozen=True, slots=True)
class CaseStatement:
    """``case``: patterns with their bodies."""

    word: ShellWord
    cases: tuple[tuple[tuple[ShellWord, ...], Block], ...]
    line: int


@dataclass(frozen=True, slots=True)
class ForLoop:
    """``for NAME in WORDS``; without *name*, ``while`` or a loop that counts."""

    body: Block
    line: int
    name: str = ""
    words: tuple[ShellWord, ...] = ()


@dataclass(frozen=True, slots=True)
class ShellFunction:
    """The definition of a function."""

    name: str
    body: Block


@dataclass(frozen=True, slots=True)
class StatementGroup:
    """Statements in braces or parentheses."""

    body: Block


Statement = (
    SimpleCommand | CommandChain | Negation | IfStatement | CaseStatement | ForLoop | ShellFunction | StatementGroup
)
Block = tuple[Statement, ...]


def parse_statements(text: str, where: str, line: int = 1) -> Block:
    """Return the statements of a script."""
    return _Parser(tokenize(text, where, line)[::-1], where).program()


@dataclass(slots=True)
class _Parser:
    rest: list[ShellToken]
    """What is left to read, the next token last."""
    where: str
    depth: int = 0
    line: int = field(default=1)

    def fail(self, rule: str) -> SpecError:
        return SpecError(f"{self.where} line {self.line}", self.shown(), rule)

    def shown(self) -> str:
        token = self.rest[-1] if self.rest else None
        if isinstance(token, ShellWord):
            return "".join(part.text for part in token.parts)
        return token.text.strip() if token is not None else ""

    # ----------------------------------------------------------------------------------------------- reading

    def take(self) -> ShellToken:
        token = self.rest.pop()
        self.line = token.line
        return token

    def word(self) -> str:
        """The next word if it is plain, without taking it."""
        token = self.rest[-1] if self.rest else None
        return token.plain if isinstance(token, ShellWord) else ""

    def operator(self) -> str:
        """The next operator, without taking it."""
        token = self.rest[-1] if self.rest else None
        return token.text if isinstance(token, ShellOperator) else ""

    def skip(self, *operators: str) -> None:
        while self.rest and self.operator() in operators:
            self.take()

    def expect(self, word: str) -> None:
        self.skip("\n", ";")
        if self.word() != word:
            raise self.fail(f"expected '{word}' here")
        self.take()

    def program(self) -> Block:
        block = self.block(())
        if self.rest:
            raise self.fail("closes something that was never opened")
        return block

    def block(self, ends: tuple[str, ...], closing: str = "") -> Block:
        """Return statements up to one of the words *ends* or the operator *closing*, which stays."""
        statements: list[Statement] = []
        while True:
            self.skip("\n", ";", "&")
            if not self.rest:
                if ends or closing:
                    raise self.fail(f"ends without {' or '.join(ends) or closing}")
                return tuple(statements)
            if self.word() in ends or (closing and self.operator() in (closing, ";;")) or self.operator() == ")":
                return tuple(statements)
            if self.operator() == ";;":
                raise self.fail("';;' belongs into a 'case'")
            statements.append(self.chain())
            self.check_end(ends)

    def check_end(self, ends: tuple[str, ...]) -> None:
        """Refuse what cannot follow a statement: a parenthesis in the middle of a command, for one."""
        separated = not self.rest or self.operator() in ("\n", ";", "&", ";;", ")") or self.word() in ends
        if not separated:
            raise self.fail("does not belong here: quote it if it is part of an argument")

    def chain(self) -> Statement:
        commands = self.statement()
        while self.operator() in ("&&", "||", "|"):
            token = self.take()
            self.skip("\n")
            commands = CommandChain(commands, token.text if isinstance(token, ShellOperator) else "", self.statement())
        return commands

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
            return StatementGroup(body)
        if word == "[[":
            return self.test()
        if word == "function" or self.defines():
            return self.function()
        if self.operator():
            raise self.fail("is an operator without a command before it")
        return self.simple()

    # -------------------------------------------------------------------------------------------- statements

    def branches(self) -> IfStatement:
        line = self.take().line
        cases: list[tuple[Block, Block]] = []
        otherwise: Block = ()
        while True:
            condition = self.block(("then",))
            if not condition:
                raise self.fail("'if' needs a condition")
            self.expect("then")
            cases.append((condition, self.block(("elif", "else", "fi"))))
            word = self.word()
            self.take()
            if word == "else":
                otherwise = self.block(("fi",))
                self.expect("fi")
            if word != "elif":
                self.redirections()
                return IfStatement(tuple(cases), otherwise, line)

    def choice(self) -> CaseStatement:
        line = self.take().line
        subject = self.take()
        self.expect("in")
        cases: list[tuple[tuple[ShellWord, ...], Block]] = []
        while True:
            self.skip("\n", ";", ";;", "(")
            if self.word() == "esac" or not self.rest:
                self.expect("esac")
                break
            patterns: list[ShellWord] = []
            while self.rest and self.operator() != ")":
                token = self.take()
                if isinstance(token, ShellWord):
                    patterns.append(token)
            if self.rest:
                self.take()
            cases.append((tuple(patterns), self.block(("esac",), ";;")))
        if not isinstance(subject, ShellWord):
            raise self.fail("'case' needs a word")
        return CaseStatement(subject, tuple(cases), line)

    def loop(self, kind: str) -> ForLoop:
        line = self.take().line
        name, words = "", list[ShellWord]()
        if kind == "for" and self.word():
            name = self.word()
            self.take()
            self.skip("\n")
            if self.word() == "in":
                self.take()
                while self.rest and isinstance(self.rest[-1], ShellWord):
                    token = self.take()
                    words += [token] if isinstance(token, ShellWord) else []
        elif kind == "for":
            self.take()  # (( … ))
        else:
            self.block(("do",))
        self.expect("do")
        body = self.block(("done",))
        self.expect("done")
        self.redirections()
        return ForLoop(body, line, name, tuple(words))

    def defines(self) -> bool:
        """Return whether ``NAME ( )`` comes next."""
        brackets = [token.text for token in self.rest[-3:-1] if isinstance(token, ShellOperator)]
        return bool(self.word()) and brackets == [")", "("]

    def function(self) -> ShellFunction:
        if self.word() == "function":
            self.take()
        name = self.word()
        self.take()
        self.skip("(", ")", "\n")
        if not self.rest:
            raise self.fail("a function needs a body")
        body = self.statement()
        return ShellFunction(name, body.body if isinstance(body, StatementGroup) else (body,))

    def test(self) -> SimpleCommand:
        """Return ``[[ … ]]`` as a command, of which operators are words, too; its last bracket is left out."""
        words, line = list[ShellWord](), self.rest[-1].line
        while self.rest and self.word() != "]]":
            token = self.take()
            if isinstance(token, ShellOperator) and token.text != "\n":
                words.append(ShellWord((WordPart("text", token.text),), token.line))
            elif isinstance(token, ShellWord):
                words.append(token)
        if not self.rest:
            raise self.fail("'[[' is never closed by ']]'")
        self.take()
        return SimpleCommand(tuple(words), line)

    def simple(self) -> SimpleCommand:
        words: list[ShellWord] = []
        target, document = None, None
        line = self.rest[-1].line
        while self.rest:
            token = self.rest[-1]
            if isinstance(token, ShellWord):
                words.append(token)
                self.take()
            elif isinstance(token, ShellOperator) and token.text in REDIRECTIONS:
                wrote, read = self.redirection()
                target, document = wrote or target, document if read is None else read
            else:
                break
        return SimpleCommand(tuple(words), line, target, document)

    def redirections(self) -> None:
        while self.operator() in REDIRECTIONS:
            self.redirection()

    def redirection(self) -> tuple[ShellWord | None, str | None]:
        """Return the file that output goes to, or the here-document that is read."""
        sign = self.take()
        following = self.rest[-1] if self.rest else None
        if isinstance(following, HereDocument):
            self.take()
            return None, following.text
        if not isinstance(following, ShellWord):
            raise self.fail("a redirection needs a file")
        self.take()
        return (following if isinstance(sign, ShellOperator) and sign.text in (">", ">>") else None), None
