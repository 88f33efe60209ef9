"""Words and operators of a shell script: quotes, comments, continued lines, arrays and here-documents.

Nothing is expanded here, and nothing is ever run: a word is a row of parts, of which `cosmic.importing.shell_values`
makes text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from cosmic.errors import SpecError

Kind = Literal["text", "variable", "arithmetic", "command"]
OPERATORS = (
    *("&>>", "<<<", "<<-", "&&", "||", ";;", "<<", ">>", ">&", "<&", "&>", ">|"),
    *(";", "|", "&", "<", ">", "(", ")", "\n"),
)
"""The longest first."""
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_PLAIN = re.compile(r"[^\s\\'\"$`#;|&<>()]+")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_DESCRIPTOR = re.compile(r"\d+(?=[<>])")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word: text, or something to be expanded."""

    kind: Kind
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, or ``NAME=( … )`` with the words of the array."""

    parts: tuple[Part, ...]
    line: int
    array: tuple[Word, ...] | None = None

    @property
    def plain(self) -> str:
        """The text of a word without quotes and expansions; nothing otherwise."""
        bare = len(self.parts) == 1 and self.parts[0].kind == "text" and not self.parts[0].quoted
        return self.parts[0].text if bare and self.array is None else ""


@dataclass(frozen=True, slots=True)
class Operator:
    """What stands between words: ``;``, ``&&``, the end of a line, a redirection."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class HereDocument:
    """The lines of a here-document, in place of the word that ends it."""

    text: str
    line: int


Token = Word | Operator | HereDocument


def tokens(text: str, where: str, line: int = 1) -> list[Token]:
    """Return the tokens of a script.

    >>> [type(each).__name__ for each in tokens("A=(1 2) # two", "a.sh")]
    ['Word', 'Operator']
    """
    return _Lexer(text, where, line).all()


def quoted_parts(text: str, where: str) -> tuple[Part, ...]:
    """Return the parts of *text* as within double quotes."""
    lexer = _Lexer(text, where, 1)
    return tuple(lexer.quoted(until=""))


class _Lexer:
    def __init__(self, text: str, where: str, line: int) -> None:
        self.text, self.where, self.line = text, where, line
        self.at = 0
        self.pending: list[tuple[str, bool]] = []
        """Here-documents that begin with the next line: how they end, and whether their tabs go."""

    def all(self) -> list[Token]:
        found: list[Token] = []
        while (token := self.next(found)) is not None:
            found.append(token)
        return [*found, Operator("\n", self.line)]

    def fail(self, rule: str) -> SpecError:
        lines = self.text.splitlines()
        shown = lines[min(self.line, len(lines)) - 1].strip() if lines else ""
        return SpecError(f"{self.where} line {self.line}", shown, rule)

    # -------------------------------------------------------------------------------------------------- tokens

    def next(self, before: list[Token]) -> Token | None:
        """Return the next token; None at the end."""
        self.skip_blanks()
        if self.at >= len(self.text):
            return None
        if (number := _DESCRIPTOR.match(self.text, self.at)) is not None:  # 2>&1
            self.at = number.end()
        if self.text.startswith("((", self.at) and _begins_command(before):
            return self.arithmetic_command()
        if self.text.startswith(("<(", ">("), self.at):  # the output of a command, or its input, as a file
            self.at += 2
            return Word((Part("command", self.balanced("(", ")")),), self.line)
        operator = next((each for each in OPERATORS if self.text.startswith(each, self.at)), None)
        if operator is None:
            last = before[-1] if before else None
            ends = isinstance(last, Operator) and last.text in ("<<", "<<-")
            return self.here_document(tabs=last.text == "<<-") if ends and isinstance(last, Operator) else self.word()
        self.at += len(operator)
        token = Operator(operator, self.line)
        if operator == "\n":
            self.line += 1
        return token

    def skip_blanks(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] in " \t\r":
                self.at += 1
            elif self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self.at = self.text.index("\n", self.at) + 1
                self.line += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def arithmetic_command(self) -> Word:
        line = self.line
        self.at += 2
        return Word((Part("text", "(("), Part("arithmetic", self.balanced("(", "))"))), line)

    def here_document(self, *, tabs: bool) -> HereDocument:
        """Return the document that the next word ends, and cut it out of the text."""
        line = self.line
        mark = "".join(part.text for part in self.word().parts)
        start = self.text.find("\n", self.at) + 1 or len(self.text)
        at, rows = start, []
        while at < len(self.text):
            end = self.text.find("\n", at)
            end = len(self.text) if end < 0 else end
            row = self.text[at:end].lstrip("\t") if tabs else self.text[at:end]
            at = end + 1
            if row == mark:
                break
            rows.append(row)
        # Lines after a here-document keep their numbers: it leaves its line ends as continued lines.
        self.text = self.text[: max(start - 1, 0)] + "\\\n" * (len(rows) + 1) + "\n" + self.text[at:]
        return HereDocument("".join(f"{row}\n" for row in rows), line)

    def word(self) -> Word:
        line, parts = self.line, list[Part]()
        while self.at < len(self.text):
            plain = _PLAIN.match(self.text, self.at)
            letter = self.text[self.at]
            if plain is not None:
                parts.append(Part("text", plain[0]))
                self.at = plain.end()
            elif letter == "#":  # within a word
                parts.append(Part("text", "#"))
                self.at += 1
            elif letter == "(" and len(parts) == 1 and _ARRAY.fullmatch(parts[0].text):
                return Word(tuple(parts), line, self.array())
            elif letter == "\\":
                self.escaped(parts)
            elif letter in "'\"$`":
                parts += self.quote_or_expansion(letter)
            else:
                break
        return Word(tuple(parts), line)

    def escaped(self, parts: list[Part]) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following == "\n":
            self.line += 1
        else:
            parts.append(Part("text", following, quoted=True))
        self.at += 2

    def array(self) -> tuple[Word, ...]:
        self.at += 1
        words: list[Word] = []
        while True:
            token = self.next([])
            if token is None:
                raise self.fail("an array is never closed by ')'")
            if isinstance(token, Word):
                words.append(token)
            elif isinstance(token, Operator) and token.text == ")":
                return tuple(words)
            elif not (isinstance(token, Operator) and token.text == "\n"):
                raise self.fail("an array holds words only")

    # ---------------------------------------------------------------------------------- quotes and expansions

    def quote_or_expansion(self, letter: str) -> list[Part]:
        if letter == "'":
            return [Part("text", self.until("'"), quoted=True)]
        if letter == '"':
            self.at += 1
            return self.quoted(until='"') or [Part("text", "", quoted=True)]
        return self.expansion(quoted=False)

    def until(self, end: str) -> str:
        """Return the text up to the next *end* behind the letter here, and go behind it."""
        close = self.text.find(end, self.at + 1)
        if close < 0:
            raise self.fail(f"a quote is never closed by {end}")
        found = self.text[self.at + 1 : close]
        self.line += found.count("\n")
        self.at = close + 1
        return found

    def quoted(self, until: str) -> list[Part]:
        """Return the parts of what stands in double quotes."""
        parts, letters = list[Part](), list[str]()

        def flush() -> None:
            if letters:
                parts.append(Part("text", "".join(letters), quoted=True))
                letters.clear()

        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == until:
                self.at += 1
                flush()
                return parts
            if letter in "$`":
                flush()
                parts += self.expansion(quoted=True)
                continue
            if letter == "\\" and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                self.at += 1
                letter = self.text[self.at].replace("\n", "")
                self.line += not letter
            letters.append(letter)
            self.line += letter == "\n"
            self.at += 1
        if until:
            raise self.fail("a quote is never closed")
        flush()
        return parts

    def expansion(self, *, quoted: bool) -> list[Part]:
        """Return what ``$`` or a backtick begins."""
        if self.text[self.at] == "`":
            return [Part("command", self.until("`"), quoted)]
        follows = self.text[self.at + 1 : self.at + 3]
        if follows == "((":
            self.at += 3
            return [Part("arithmetic", self.balanced("(", "))"), quoted)]
        if follows[:1] == "(":
            self.at += 2
            return [Part("command", self.balanced("(", ")"), quoted)]
        if follows[:1] == "{":
            self.at += 2
            return [Part("variable", self.balanced("{", "}"), quoted)]
        if follows[:1] in ("'", '"') and not quoted:
            self.at += 1
            return self.quote_or_expansion(follows[0])
        name = _NAME.match(self.text, self.at + 1)
        self.at = self.at + 1 if name is None else name.end()
        return [Part("text", "$", quoted)] if name is None else [Part("variable", name[0], quoted)]

    def balanced(self, opening: str, closing: str) -> str:
        """Return the text up to *closing*, over pairs of *opening* and its counterpart, and go behind it."""
        start, depth, quote = self.at, 0, ""
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == "\\":
                self.at += 1
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            elif depth == 0 and self.text.startswith(closing, self.at):
                found = self.text[start : self.at]
                self.line += found.count("\n")
                self.at += len(closing)
                return found
            else:
                depth += (letter == opening) - (letter == closing[0])
            self.at += 1
        raise self.fail(f"an expansion is never closed by {closing}")


def _begins_command(before: list[Token]) -> bool:
    last = before[-1] if before else None
    if isinstance(last, Word):
        return last.plain in ("if", "elif", "while", "until", "then", "do", "else", "!", "for")
    return not isinstance(last, Operator) or last.text in ("\n", ";", "&&", "||")
