"""Arrays that record the operations done to them, and the tape on which they record.

A `RecordedArray` has no numbers. It has a place on the tape, and a kind: truth values, whole numbers or any
numbers. Operations of NumPy on it give another one. What would take a number out of it (`float`, `bool`, iteration)
raises `Unrecordable`: then that structure is evaluated without a program.

Two questions about all designs are answered so that the answer holds for any batch. *Is this so in any of them, in all
of them?* Yes, and no: code then computes both cases, and selects. Where it depends on the machine alone, and all the
designs of the batch agree, the answer is theirs, and a guard notes it. *What is the largest?* A power of two, with a
guard.

Operations have the numbers by which `native/program.c` knows them. All values are float64: whole numbers below 2^53 and
truth values (0 and 1) are exact in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import copysign, isnan
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.base import numeric
from cosmic.design.design_batch import Names

# ---- The operations of a recorded program, by the numbers that `native/program.c` knows them by

Array = Any
"""An array of float64, or one number."""


def _as_truth(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *values: np.multiply(function(*values), 1.0)


def _as_whole(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *values: np.multiply(function(*(np.asarray(value).astype(np.int64) for value in values)), 1.0)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "negative": np.negative,
    "absolute": np.absolute,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "cbrt": numeric.cbrt,
    "expm1": numeric.expm1,
    "log": numeric.log,
    "log2": numeric.log2,
    "trunc": np.trunc,
    "isnan": _as_truth(np.isnan),
    "logical_not": lambda value: 1.0 - value,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "power": numeric.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": _as_truth(np.less),
    "less_equal": _as_truth(np.less_equal),
    "equal": _as_truth(np.equal),
    "not_equal": _as_truth(np.not_equal),
    "logical_and": np.multiply,
    "logical_or": np.maximum,
    "gcd": _as_whole(np.gcd),
    "where": lambda condition, then, otherwise: np.where(np.asarray(condition) != 0, then, otherwise),
}
"""What each operation does, in NumPy: the reference, and the fallback."""
OPERATION_NAMES = (*OPERATIONS, "index", "gather", "interleaved_bytes")
OPERATION_NUMBERS = {name: number for number, name in enumerate(OPERATION_NAMES)}
"""The number of each operation. The last are no plain arithmetic: *index* is the place of a combination of several
columns in a table (`tables`), *gather* a number of such a table; the last is a function of the physics that is
recorded as a whole (`cosmic.base.numeric.elementwise`)."""


# ---- Arrays that note what is done to them, and the tape on which they note it

Node = tuple[int, int, int, int]
"""The number of an operation, and up to three nodes that it reads. An index, or a function that is recorded as a whole,
has its table (or 0), and where in the tape's lists its operands begin and how many there are. A gather has its index,
its lookup, and which of the two numbers it is."""
CONSTANT, INPUT = -1, -2
"""What else a node can be: one number for all designs, or a column of them."""


INDEX, GATHER = OPERATION_NUMBERS["index"], OPERATION_NUMBERS["gather"]
LISTED = (INDEX, OPERATION_NUMBERS["interleaved_bytes"])
LONGEST = {"interleaved_bytes": 68}
"""Operands that functions recorded as a whole can have (native/program.c)."""
OPERANDS = [
    1 if number < OPERATION_NUMBERS["add"] else 3 if name == "where" else 2
    for number, name in enumerate(OPERATION_NAMES)
]
OPERANDS[GATHER] = 1
KnownColumns = tuple[str | tuple[str, ...] | None, ...]
"""Of each column of a combination the one name of all designs, the names its codes stand for, or None for numbers."""


class Unrecordable(Exception):  # noqa: N818  who asked for a program goes on without one
    """Something was done to a recorded array that no program can do."""


class Guard(NamedTuple):
    """What must hold of a node in every design for a program to be right: at least, and at most so much."""

    node: int
    least: float
    most: float


class Lookup(NamedTuple):
    """A function of a few columns."""

    function: Callable[..., tuple[float, float]]
    leading: tuple[str, ...]
    """Its first arguments."""
    known: KnownColumns


class Tape:
    """Instructions in the order in which they were noted; equal ones are one."""

    def __init__(self, values: Mapping[str, npt.NDArray[Any]], varying: Sequence[str]) -> None:
        self.nodes: list[Node] = []
        self.lists: list[int] = []
        self.constants: dict[int, float] = {}
        self.inputs: dict[int, str] = {}
        self.lookups: dict[Lookup, int] = {}
        self.tables: dict[KnownColumns, int] = {}
        self.guards: dict[Guard, None] = {}
        self._values, self._varying = values, frozenset(varying)
        self._places: dict[tuple[int, ...], int] = {}
        self._numbers: dict[tuple[float, float], int] = {}
        self._varied: list[bool] = []
        """Whether a node depends on the workload, or on what differs among the designs that are recorded."""

    # ---------------------------------------------------------------------------------------- nodes

    def note(self, operation: int, first: int, second: int = 0, third: int = 0) -> int:
        """Return the node of an operation on up to three nodes, which is added if it is new."""
        node = (operation, first, second, third)
        number = self._places.get(node)
        if number is None:
            number = self._places[node] = len(self.nodes)
            self.nodes.append(node)
            varied, operands = self._varied, OPERANDS[operation]
            varied.append(varied[first] or (operands > 1 and varied[second]) or (operands > 2 and varied[third]))
        return number

    def note_listed(self, operation: int, first: int, read: Sequence[int]) -> int:
        """Return the node of an operation on any number of nodes, which is added if it is new."""
        key = (operation, first, -1, *read)
        number = self._places.get(key)
        if number is None:
            number = self._places[key] = len(self.nodes)
            self.nodes.append((operation, first, len(self.lists), len(read)))
            self.lists += read
            self._varied.append(any(self._varied[operand] for operand in read))
        return number

    def constant(self, value: float) -> int:
        """Return the node of a constant; 0.0 and -0.0 are two."""
        node = self._numbers.get((value, 1.0)) if value else None  # what nearly all constants are: a known one
        if node is not None:
            return node
        number = float(value)
        key = (0.0, 0.0) if isnan(number) else (number, copysign(1.0, number))
        node = self._numbers.get(key)
        if node is None:
            node = self._numbers[key] = len(self.nodes)
            self.nodes.append((CONSTANT, 0, 0, 0))
            self.constants[node] = number
            self._varied.append(False)
        return node

    def column(self, path: str) -> RecordedArray:
        """Return a field of the designs."""
        node = len(self.nodes)
        self.nodes.append((INPUT, 0, 0, 0))
        self.inputs[node] = path
        self._varied.append(path.startswith("workload.") or path in self._varying)
        return self.wrap(node, self._values[path].dtype.kind)

    def wrap(self, node: int, kind: str) -> RecordedArray:
        """Return an array of some kind that is recorded at *node*."""
        array: RecordedArray = TEMPLATES[kind].view(RecordedArray)
        array.tape, array.node, array.kind = self, node, kind
        return array

    def place_of(self, value: Any) -> int:
        """Return the node of a recorded array or of a number."""
        if type(value) is RecordedArray:
            if value.tape is not self:
                raise Unrecordable("a part of a recorded array")
            return value.node
        if isinstance(value, np.ndarray):
            if value.ndim > 0:
                raise Unrecordable("an array that is not recorded")
            value = value.item()  # a choice between constants
        return self.constant(value)

    # ----------------------------------------------------------------------------------- operations

    def operate(self, name: str, operands: Sequence[Any], kind: str) -> RecordedArray:
        """Return the result of an operation; of constants it is one."""
        operand_nodes = [
            operand.node if type(operand) is RecordedArray and operand.node >= 0 else self.place_of(operand)
            for operand in operands
        ]
        simple = self._simplified(name, operand_nodes)
        return self.wrap(self.note(OPERATION_NUMBERS[name], *operand_nodes) if simple is None else simple, kind)

    def combine(self, name: str, left: Any, right: Any) -> RecordedArray:
        """Return `operate` for the arithmetic of two operands: what is done most often, so it is done at once."""
        if type(left) is RecordedArray and left.node >= 0:
            first, kinds = left.node, left.kind
        else:
            first, kinds = self.place_of(left), _kind_of_value(left)
        if type(right) is RecordedArray and right.node >= 0:
            second, kinds = right.node, kinds + right.kind
        else:
            second, kinds = self.place_of(right), kinds + _kind_of_value(right)
        number = None
        if first in self.constants or second in self.constants:
            number = self._simplified(name, [first, second])
        if number is None:
            node = (OPERATION_NUMBERS[name], first, second, 0)
            number = self._places.get(node)
            if number is None:
                number = self._places[node] = len(self.nodes)
                self.nodes.append(node)
                self._varied.append(self._varied[first] or self._varied[second])
        kind = "f" if "f" in kinds or name == "divide" else "i"
        array: RecordedArray = TEMPLATES[kind].view(RecordedArray)
        array.tape, array.node, array.kind = self, number, kind
        return array

    def _simplified(self, name: str, operands: list[int]) -> int | None:
        """Return where the result is already: of x * 1, x + 0 and the like, and of constants."""
        constants = self.constants
        known_numbers = [constants.get(operand) for operand in operands]
        if known_numbers.count(None) == len(known_numbers):
            return None
        if None not in known_numbers:
            with np.errstate(all="ignore"):
                return self.constant(float(OPERATIONS[name](*(np.float64(value) for value in known_numbers))))
        if name in NEUTRAL:
            neutral, sides = NEUTRAL[name]
            for side in sides:
                if known_numbers[side] == neutral:
                    return operands[1 - side]
        if name == "where" and known_numbers[0] is not None:
            return operands[1] if known_numbers[0] else operands[2]
        return None

    def call(self, function: Callable[..., Any], operands: Sequence[Any]) -> RecordedArray:
        """Return the result of a function that is recorded as a whole."""
        if function.__name__ in OPERATIONS:
            return self.operate(function.__name__, operands, "f")
        if len(operands) > LONGEST.get(function.__name__, 0):
            raise Unrecordable(f"no operation for {function.__name__} of {len(operands)} numbers")
        nodes = [self.place_of(operand) for operand in operands]
        return self.wrap(self.note_listed(OPERATION_NUMBERS[function.__name__], 0, nodes), "f")

    def look_up(
        self, function: Callable[..., tuple[float, float]], leading: tuple[str, ...], columns: Sequence[Any]
    ) -> tuple[RecordedArray, RecordedArray]:
        """Return the two numbers that a function of few distinct combinations of *columns* gives."""
        key: list[str | tuple[str, ...] | None] = []
        nodes: list[int] = []
        for column in columns:
            key.append(column if isinstance(column, str) else column.names if isinstance(column, Names) else None)
            if not isinstance(column, str):
                nodes.append(self.place_of(column.codes if isinstance(column, Names) else column))
        table = self.tables.setdefault(tuple(key), len(self.tables))
        index = self.note_listed(INDEX, table, nodes)
        lookup = self.lookups.setdefault(Lookup(function, leading, tuple(key)), len(self.lookups))
        first, second = (self.wrap(self.note(GATHER, index, lookup, side), "f") for side in (0, 1))
        return first, second

    # -------------------------------------------------------------------------------- all designs at once

    def anywhere(self, asked: RecordedArray) -> bool:
        """Return whether *asked* is true in any design, of this batch and of others."""
        return self._varied[self.place_of(asked)] or self._agreed(asked)

    def everywhere(self, asked: RecordedArray) -> bool:
        """Return whether *asked* is true in all designs, of this batch and of others."""
        return not self._varied[self.place_of(asked)] and self._agreed(asked)

    def _agreed(self, asked: RecordedArray) -> bool:
        """Return the truth value that all designs agree in, and record a guard of it."""
        truth = self.place_of(asked if asked.kind == "b" else asked != 0)
        if truth in self.constants:
            return bool(self.constants[truth])
        value = float(np.ravel(self._computed(truth))[0])
        self.guards[Guard(truth, value, value)] = None
        return bool(value)

    def most(self, asked: RecordedArray) -> int:
        """Return a power of two that no design exceeds, guarded."""
        node = self.place_of(asked)
        largest, bound = np.max(self._computed(node)), 1
        while bound < largest:
            bound *= 2
        if node not in self.constants:
            self.guards[Guard(node, -np.inf, float(bound))] = None
        return bound

    def _computed(self, node: int) -> npt.NDArray[np.float64]:
        """Return the numbers of the designs that are recorded at *node*."""
        code = self.nodes[node][0]
        if code == CONSTANT:
            return np.array([self.constants[node]])
        if code == INPUT:
            return np.asarray(self._values[self.inputs[node]], dtype=np.float64)
        if OPERATION_NAMES[code] not in OPERATIONS:
            raise Unrecordable("a question about what is looked up")
        operands = (self._computed(operand) for operand in nodes_read_by(self.nodes[node], self.lists))
        computed: npt.NDArray[np.float64] = OPERATIONS[OPERATION_NAMES[code]](*operands)
        return computed


def nodes_read_by(node: Sequence[int], lists: Sequence[int]) -> Sequence[int]:
    """Return the nodes that a node reads."""
    operation = node[0]
    if operation in LISTED:
        return lists[node[2] : node[2] + node[3]]
    return node[1 : 1 + OPERANDS[operation]] if operation >= 0 else ()


NEUTRAL = {
    "add": (0.0, (0, 1)),
    "subtract": (0.0, (1,)),
    "multiply": (1.0, (0, 1)),
    "divide": (1.0, (1,)),
    "power": (1.0, (1,)),
}
"""The operand that changes nothing, and on which sides. (-0.0 + 0.0 is 0.0: equal to -0.0, if not the same bits.)"""
TEMPLATES = {kind: np.zeros(1, dtype=dtype) for kind, dtype in {"b": bool, "i": np.int64, "f": np.float64}.items()}
"""By kind: the array whose view each recorded array is, so that code that asks for a dtype gets the right one."""

UNARY = ("negative", "absolute", "floor", "ceil", "rint", "sqrt")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "floor_divide", "remainder", "gcd")
WHOLE = ("negative", "absolute")
"""Those of one operand that give whole numbers for whole numbers; of two, all but a division do."""
TRUTH = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "invert": "logical_not"}
TRUTH |= {name: name for name in ("logical_and", "logical_or", "logical_not")}
COMPARED = {name: (name, False) for name in ("less", "less_equal", "equal", "not_equal")}
COMPARED |= {"greater": ("less", True), "greater_equal": ("less_equal", True)}
WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "square": lambda value: value * value,
    "reciprocal": lambda value: 1.0 / value,
    "isinf": lambda value: np.equal(np.absolute(value), np.inf),
}
"""Functions that are several operations; NumPy calls the first two where an array is raised to a power."""


class RecordedArray(np.ndarray[Any, Any]):
    """An array of unknown numbers, and where the tape notes them."""

    tape: Tape | None = None
    """None for a part of a recorded array."""
    node: int = -1
    kind: str = ""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Note an operation."""
        name = ufunc.__name__
        if method != "__call__" or options:
            raise Unrecordable(f"{name}.{method}")
        tape = self.tape
        if tape is None:
            raise Unrecordable("a part of a recorded array")
        if name in BINARY:
            return tape.combine(name, *inputs)
        if name in UNARY:
            return tape.operate(name, inputs, "i" if self.kind != "f" and name in WHOLE else "f")
        if name in COMPARED:
            name, mirrored = COMPARED[name]
            return tape.operate(name, inputs[::-1] if mirrored else inputs, "b")
        if name in TRUTH and all(_kind_of_value(input_) == "b" for input_ in inputs):
            return tape.operate(TRUTH[name], inputs, "b")
        if name == "isnan":
            return tape.operate(name, inputs, "b")
        if name in WRITTEN_OUT:
            return WRITTEN_OUT[name](*inputs)
        raise Unrecordable(f"no operation for {name}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Note one of a few functions of NumPy that are no operations."""
        replaced = FUNCTIONS.get(function.__name__)
        if replaced is None or kwargs:
            raise Unrecordable(f"no operation for numpy.{function.__name__}")
        return replaced(*args)

    def _on_tape(self) -> Tape:
        if self.tape is None:
            raise Unrecordable("a part of a recorded array")
        return self.tape

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Any:
        """Return the same numbers: all are float64 in a program."""
        kind = np.dtype(dtype).kind
        tape = self._on_tape()
        if kind == "i" and self.kind == "f":
            return tape.operate("trunc", (self,), "i")
        if kind == "b" and self.kind != "b":
            return tape.operate("not_equal", (self, 0.0), "b")
        return tape.wrap(self.node, kind)

    def any(self, *_: Any, **__: Any) -> Any:
        """Return whether it is true in any design, of this batch and of others."""
        return self._on_tape().anywhere(self)

    def all(self, *_: Any, **__: Any) -> Any:
        """Return whether it is true in all designs, of this batch and of others."""
        return self._on_tape().everywhere(self)

    def max(self, *_: Any, **__: Any) -> Any:
        """Return a power of two that no design exceeds."""
        return self._on_tape().most(self)

    def tobytes(self, *_: Any) -> bytes:
        """Return bytes that identify the node."""
        self._on_tape()
        return b"node %d" % self.node

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and not key:
            return self
        raise Unrecordable("a part of a recorded array")

    def _leave(self, *_: Any, **__: Any) -> Any:
        """Refuse what would take a number out of the array."""
        raise Unrecordable("a number of a recorded array")

    __bool__ = __int__ = __float__ = __index__ = __iter__ = __setitem__ = _leave
    item = tolist = sum = min = argmax = argmin = cumsum = prod = mean = take = _leave


def _kind_of_value(value: Any) -> str:
    if type(value) is RecordedArray:
        return value.kind
    return "b" if isinstance(value, bool | np.bool_) else "i" if isinstance(value, int | np.integer) else "f"


def _record_where(condition: Any, then: Any, otherwise: Any) -> Any:
    kinds = {_kind_of_value(then), _kind_of_value(otherwise)}
    kind = kinds.pop() if len(kinds) == 1 else "f" if "f" in kinds else "i"
    tape = next(value for value in (condition, then, otherwise) if type(value) is RecordedArray)._on_tape()
    if _kind_of_value(condition) != "b":
        condition = condition != 0
    return tape.operate("where", (condition, then, otherwise), kind)


def _record_clip(value: Any, least: Any, most: Any) -> Any:
    above = value if least is None else np.maximum(value, least)
    return above if most is None else np.minimum(above, most)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": _record_where,
    "clip": _record_clip,
    "any": lambda asked: asked.any(),
    "all": lambda asked: asked.all(),
    "max": lambda asked: asked.max(),
    "amax": lambda asked: asked.max(),
    "ndim": lambda value: 1,
}
"""Functions of NumPy that are not ufuncs, on recorded arrays."""
