"""Checks of public arguments, for all packages: what a value must be, and the one exception for one that is not.

`checked` reads the annotations of a function or a class and checks every argument by them, before anything else
happens: `int` is an integer of less than 64 bits (no truth value, float or text), `float` a finite number, a class an
instance of it. A narrower range stands in the annotation, `Annotated[int, Integer(1)]`; so does what the function reads
on its own, `Annotated[str | int, UNCHECKED]`. The keys of `**options: Unpack[Keys]` are arguments: where one is not
given it has its `Default`, if it says one, or is absent. Numbers of numpy become those of Python; nothing is rounded or
cut.
"""

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, is_dataclass
from functools import cache, cached_property, wraps
from math import inf
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, Union, Unpack, get_args, get_origin, get_type_hints

T = TypeVar("T")
LONGEST_TOLD = 60
INT64 = 2**63 - 1
MOST_COUNT = 2**31 - 1
"""Of anything that programs and tables of transfers number."""

MOST_CHARACTERS = 1500
"""Limit on a message, since it may quote megabytes of bad input."""


class WeftError(ValueError):
    """Bad input: the message names the item, what it was and what is accepted.

    The command line prints the message on one line and exits with code 2. The message is therefore a single line,
    whatever the input: line breaks become spaces, other control characters are escaped as in Python, and the middle of
    an overlong message is cut.
    """

    def __init__(self, message: object = "") -> None:
        text = str(message)
        if len(text) > MOST_CHARACTERS:
            text = f"{text[: MOST_CHARACTERS - 300]} [...] {text[-200:]}"
        super().__init__(printable(text))


def printable(text: str) -> str:
    """A text as one line that a terminal shows and does not obey: control characters are escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in " ".join(text.splitlines()))


def told(value: object) -> str:
    """A value as an error message shows it: not longer than a line."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "of thousands of digits"
    return text if len(text) <= LONGEST_TOLD else f"{text[:LONGEST_TOLD]}..."


class Unfit(WeftError):
    """A value that is not accepted; `inner` if it is an item of one of the right shape."""

    def __init__(self, value: object, what: str, accepted: str) -> None:
        super().__init__(f"{what} is {told(value)}: give {accepted}")
        self.inner = ", item " in what


class Kind(Protocol):
    """What a value must be."""

    @property
    def accepted(self) -> str:
        """For messages: "an integer from 1 to 8"."""

    @property
    def plain(self) -> frozenset[type]:
        """Types of which every value is accepted as it is."""

    def might_be(self, value: Any) -> bool:
        """Whether the shape of a value fits, whatever its range and its items."""

    def read(self, value: Any, what: str) -> Any:
        """The value, where it is accepted."""


class _Looked:
    """A kind of which every value has to be looked at."""

    plain: ClassVar[frozenset[type]] = frozenset()

    def might_be(self, value: Any) -> bool:
        """See `Kind`."""
        return True


_INT = {int}


@dataclass(frozen=True)
class Integer(_Looked):
    """An integer from `least` to `most`, both included."""

    least: int = -INT64
    most: int = INT64

    @property
    def accepted(self) -> str:
        """What is accepted, in words."""
        return f"an integer{_range(self.least, self.most)}"

    def might_be(self, value: Any) -> bool:
        """See `Kind`."""
        return isinstance(value, Integral) and not isinstance(value, bool)

    def fits_all(self, values: Collection[Any]) -> bool:
        """Whether all values are accepted as they are, at the speed of the interpreter's own loops."""
        if len(values) < 2:
            return not values or (type(one := next(iter(values))) is int and self.least <= one <= self.most)
        return {*map(type, values)} == _INT and self.least <= min(values) and max(values) <= self.most

    def read(self, value: Any, what: str) -> int:
        """The value as an int. Unfit: it is none, or out of range."""
        if type(value) is not int:
            if not self.might_be(value):
                raise Unfit(value, what, self.accepted)
            return self.read(int(value), what)
        if not self.least <= value <= self.most:
            raise Unfit(value, what, self.accepted)
        return value


@dataclass(frozen=True)
class Number(_Looked):
    """A finite number from `least` (`above`: more than that) to `most`."""

    least: float = -inf
    most: float = inf
    above: bool = False

    @property
    def accepted(self) -> str:
        """What is accepted, in words."""
        return f"a number{_range(self.least, self.most, self.above)}"

    def might_be(self, value: Any) -> bool:
        """See `Kind`."""
        return issubclass(type(value), Real) and not isinstance(value, bool)

    def read(self, value: Any, what: str) -> Any:
        """The value as a plain number. Unfit: it is none, or out of range."""
        if not self.might_be(value):
            raise Unfit(value, what, self.accepted)
        if not (-inf < value < inf and self.least <= value <= self.most) or (self.above and value == self.least):
            raise Unfit(value, what, self.accepted)
        return value.item() if hasattr(value, "item") else value


@dataclass(frozen=True)
class Choice(_Looked):
    """One of some words."""

    words: Sequence[str]

    @property
    def accepted(self) -> str:
        """What is accepted, in words."""
        return f"one of {', '.join(self.words)}"

    def read(self, value: Any, what: str) -> str:
        """The word. WeftError: it is none of them."""
        return choice(value, self.words, what)


@dataclass(frozen=True)
class _Kind:
    accepted: str
    accepts: Callable[[Any], bool]
    read_as: Callable[[Any], Any] = lambda value: value
    plain: frozenset[type] = frozenset()

    def might_be(self, value: Any) -> bool:
        """See `Kind`."""
        return self.accepts(value)

    def read(self, value: Any, what: str) -> Any:
        if not self.accepts(value):
            raise Unfit(value, what, self.accepted)
        return self.read_as(value)


@dataclass(frozen=True)
class Reads(_Looked):
    """What a function (value, what) reads, such as text with a unit; `keep`: the value stays as it was written."""

    reader: Callable[[Any, str], Any]
    keep: bool = False
    accepted: str = "a number with a unit"

    def read(self, value: Any, what: str) -> Any:
        """What the reader makes of the value, or the value itself. WeftError: as the reader has it."""
        found = self.reader(value, what)
        return value if self.keep else found


@dataclass(frozen=True)
class InUnit(_Looked):
    """A number in the unit that its name ends with, or text with any unit of the kind, such as `example`."""

    number: Kind
    reader: Callable[[str, str], Any]
    example: str

    @property
    def accepted(self) -> str:
        """What is accepted, in words."""
        return f"{self.number.accepted}, or text such as {self.example}"

    def read(self, value: Any, what: str) -> Any:
        """The number, or the text in its unit. WeftError: neither."""
        if isinstance(value, str):
            return self.number.read(self.reader(value, what), what)
        if not self.number.might_be(value):
            raise Unfit(value, what, self.accepted)
        return self.number.read(value, what)


UNCHECKED = _Kind("anything", lambda value: True)
"""What a function checks itself."""


@dataclass(frozen=True)
class Default:
    """In the annotation of a key: its value where it is not given."""

    value: Any


_PLAIN: dict[Any, Kind] = {
    int: Integer(),
    float: Number(),
    # numpy names its own so, too
    bool: _Kind("true or false", lambda value: type(value).__name__ == "bool", bool, frozenset([bool])),
    str: _Kind("text", lambda value: isinstance(value, str), plain=frozenset([str])),
    type(None): _Kind("None", lambda value: value is None, plain=frozenset([type(None)])),
}
Name = Annotated[str, _Kind("text without control characters", lambda one: isinstance(one, str) and one.isprintable())]
Natural = Annotated[int, Integer(0)]
Count = Annotated[int, Integer(1, MOST_COUNT)]
Positive = Annotated[float, Number(0, above=True)]
NotNegative = Annotated[float, Number(0)]
Share = Annotated[float, Number(0, 1, above=True)]
"""Above 0 and at most 1."""


def integer(value: object, what: str, least: int = -INT64, most: int = INT64) -> int:
    """An integer from `least` to `most`.

    WeftError: not an integer (a truth value, 2.0 and "2" are none), or out of range.

    Examples
    --------
    >>> import numpy as np
    >>> integer(np.int64(4), "chunks", 1)
    4
    """
    return Integer(least, most).read(value, what)


def number(value: object, what: str, least: float = -inf, most: float = inf, *, above: bool = False) -> float:
    """A finite number from `least` to `most`; `above`: more than `least`."""
    found: float = Number(least, most, above).read(value, what)
    return found


def truth(value: object, what: str) -> bool:
    """True or False."""
    return bool(_PLAIN[bool].read(value, what))


def choice(value: object, accepted: Iterable[str], what: str, also: str = "") -> str:
    """A word that is among the accepted ones; the message names them, and the nearest.

    WeftError: any other value.

    Examples
    --------
    >>> choice("fifi", ("fifo", "priority"), "discipline")
    Traceback (most recent call last):
    topologies.checks.WeftError: discipline 'fifi' is unknown: choose one of fifo, priority (did you mean fifo?)
    """
    words = list(accepted)
    if isinstance(value, str) and value in words:
        return value
    accepted = ", ".join(words) or "none"
    raise WeftError(f"{what} {told(value)} is unknown: choose one of {accepted}{also}{nearest(value, words)}")


EXTRAS = {"matplotlib": "plot", "clarabel": "solve", "networkx": "graph", "rustworkx": "graph", "simpy": "reference",
          "pyarrow": "data", "pandas": "frame", "distributed": "dask"}
"""The extra of weft that brings a package."""


def not_installed(package: str) -> str:
    """The message where a package is missing: which extra brings it.

    Examples
    --------
    >>> not_installed("matplotlib")
    'this needs weft[plot]: matplotlib is not installed (pip install matplotlib)'
    """
    if package not in EXTRAS:
        return f"{package} is not installed: pip install {package}"
    return f"this needs weft[{EXTRAS[package]}]: {package} is not installed (pip install {package})"


def nearest(value: object, words: Iterable[str]) -> str:
    """The end of a message: " (did you mean fifo?)", or nothing if no word is near; capitals do not count."""
    plain = {word.lower(): word for word in words}
    from difflib import get_close_matches  # of what is mistaken alone

    near = get_close_matches(value.lower(), plain, 1) if isinstance(value, str) and len(value) <= LONGEST_TOLD else []
    return f" (did you mean {plain[near[0]]}?)" if near else ""


def checked(target: T) -> T:
    """Decorator of a function or a class: its arguments are checked by their annotations.

    A class is checked where it is made, before its own `__post_init__`; of a named tuple that is not `_replace`.

    WeftError: from the decorated callable, for the first argument that is not accepted.

    Examples
    --------
    >>> @checked
    ... def cut(size_bytes: int, chunks: Count = 1) -> int:
    ...     return size_bytes // chunks
    >>> cut(10, chunks=2.5)
    Traceback (most recent call last):
    topologies.checks.Unfit: chunks is 2.5: give an integer from 1 to 2147483647
    """
    if not isinstance(target, type):
        return _wrap(target, target, _open_keys(target))  # type: ignore[arg-type, return-value]  # a function
    name = "__new__" if issubclass(target, tuple) else "__init__"
    setattr(target, name, _wrap(getattr(target, name), target))
    return target


_Argument = tuple[str, frozenset[type], Callable[[Any, str], Any] | None, int, int]
"""Its name, the types accepted as they are, what reads others (None: unchecked), and the integers accepted at once."""


def _argument(name: str, kind: Kind) -> _Argument:
    kinds = (getattr(one, "number", one) for one in getattr(kind, "kinds", [kind]))  # of text with a unit, the number
    least, most = next(((one.least, one.most) for one in kinds if isinstance(one, Integer)), (0, -1))
    return name, kind.plain, None if kind is UNCHECKED else kind.read, least, most


def _open_keys(call: Any) -> dict[str, Any]:
    """Make each key of `**options: Unpack[Keys]` an argument, in the signature and the annotations of a function.

    Returns the values of keys that have a `Default`.
    """
    code = getattr(inspect.unwrap(call), "__code__", None)
    if code is not None and not code.co_flags & inspect.CO_VARKEYWORDS:
        return {}  # as of nearly all: a signature takes long to make
    signature = inspect.signature(call)
    *others, last = signature.parameters.values() or [None]
    if last is None or last.kind is not last.VAR_KEYWORD:
        return {}
    alone = types.SimpleNamespace(__annotations__={last.name: last.annotation})
    unpacked = get_type_hints(alone, call.__globals__)[last.name]
    if get_origin(unpacked) is not Unpack:
        return {}
    (keys,) = get_args(unpacked)
    plain, hints = get_type_hints(keys), get_type_hints(keys, include_extras=True)
    defaults = {name: said.value for name, hint in hints.items() for said in getattr(hint, "__metadata__", ())
                if isinstance(said, Default)}
    own = [last.replace(name=name, kind=last.KEYWORD_ONLY, default=defaults.get(name), annotation=plain[name])
           for name in plain]
    call.__signature__ = signature.replace(parameters=[*others, *own])
    call.__annotations__ = {**call.__annotations__, **hints}
    del call.__annotations__[last.name]
    return defaults


def _wrap(call: Callable[..., Any], annotated: Any, defaults: Mapping[str, Any] = {}) -> Callable[..., Any]:
    @cache
    def kinds() -> tuple[list[_Argument], dict[str, _Argument], bool]:
        parameters = inspect.signature(call).parameters.values()
        if is_dataclass(annotated) or hasattr(annotated, "_fields"):
            hints = get_type_hints(annotated, include_extras=True)  # at the first call: all names are known by then
        else:
            given = {one.name: call.__annotations__[one.name] for one in parameters if one.name in call.__annotations__}
            hints = get_type_hints(types.SimpleNamespace(__annotations__=given), call.__globals__, include_extras=True)
        plain = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        read = {one.name: kind_of(hints.get(one.name, Any)) for one in plain}
        found = {name: _argument(name, kind) for name, kind in read.items()}
        in_order = [found[one.name] for one in plain if one.kind is not one.KEYWORD_ONLY]
        return in_order, found, any(one.kind is one.VAR_KEYWORD for one in parameters)

    @wraps(call)
    def checking(*args: Any, **kwargs: Any) -> Any:
        in_order, by_name, takes_any = kinds()
        read = [
            value if reads is None or (kind := type(value)) in plain or (kind is int and least <= value <= most)
            else reads(value, name)
            for value, (name, plain, reads, least, most) in zip(args, in_order, strict=False)
        ]
        for name, value in kwargs.items():
            if name in by_name:
                _, plain, reads, least, most = by_name[name]
                if not (reads is None or (kind := type(value)) in plain or (kind is int and least <= value <= most)):
                    kwargs[name] = reads(value, name)
            elif not takes_any:
                raise WeftError(_unbound(annotated, call, args, kwargs))
        try:
            return call(*read, *args[len(read):], **({**defaults, **kwargs} if defaults else kwargs))
        except MemoryError as fault:
            raise WeftError(out_of_memory(fault)) from fault
        except TypeError as fault:
            if fault.__traceback__ is None or fault.__traceback__.tb_next is not None:
                raise  # from within, not of the call itself
            raise WeftError(_unbound(annotated, call, args, kwargs) or fault) from None

    return checking


def out_of_memory(fault: MemoryError) -> str:
    """What happened, and what would take less."""
    return f"out of memory{f': {fault}' if str(fault) else ''}: give a smaller fabric or fewer chunks"


def _unbound(annotated: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """What is wrong with the arguments of a call, which does not accept them; "" where nothing is."""
    own = 0 if call is annotated else 1  # self
    parameters = list(inspect.signature(call).parameters.values())[own:]
    names = [one.name for one in parameters if one.kind is not one.VAR_POSITIONAL]
    called = annotated.__name__
    unknown = [name for name in kwargs if name not in names]
    if unknown:
        return f"{called} has no argument {told(unknown[0])}: it takes {', '.join(names)}{nearest(unknown[0], names)}"
    in_order = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    missing = [
        one.name for one in parameters
        if one.default is one.empty and one.name not in kwargs and one not in in_order[: len(args) - own]
        and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if missing:
        return f"{called} needs {', '.join(missing)}: it takes {', '.join(names)}"
    if len(args) - own > len(in_order):
        rest = ", ".join(one.name for one in parameters[len(in_order):])
        return (f"{called} takes at most {len(in_order)} without a name, and {len(args) - own} are given"
                f"{f'; by name: {rest}' if rest else ''}")
    return ""


def kind_of(hint: Any) -> Kind:
    """What an annotation accepts."""
    import numpy as np  # here, at the first call of what is checked: a help checks nothing, and loads nothing

    if isinstance(hint, InitVar):
        return kind_of(hint.type)
    if hint in (Any, object) or isinstance(hint, TypeVar):
        return UNCHECKED
    origin, arguments = get_origin(hint), get_args(hint)
    alias = origin or hint
    if hasattr(alias, "__value__"):  # of Python 3.12's `type`, as numpy has NDArray there
        return kind_of(alias.__value__[arguments] if arguments else alias.__value__)
    if origin is Annotated:
        return next((one for one in hint.__metadata__ if hasattr(one, "read")), kind_of(arguments[0]))
    if origin in (Union, types.UnionType):
        return _Either([kind_of(one) for one in arguments])
    if origin is None:
        return _PLAIN.get(hint) or _instance(hint)
    if origin is np.ndarray:
        return _array(np.ndarray, get_args(arguments[1])[0])
    if origin is Callable:
        return _Kind("a function", callable)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*map(kind_of, arguments))
    if origin is tuple and arguments[-1] is not ...:
        return _fixed([kind_of(one) for one in arguments])
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _items(origin, kind_of(arguments[0]))
    return _instance(origin) if isinstance(origin, type) else UNCHECKED


def _instance(kind: type) -> Kind:
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    if getattr(kind, "_is_protocol", False):
        needed = [name for name in vars(kind) if not name.startswith("_")]
        return _Kind(f"{article} {kind.__name__}", lambda value: all(hasattr(value, name) for name in needed))
    example = getattr(kind, "EXAMPLE", "")
    called = f"{article} {kind.__name__}{f', such as {example}' if example else ''}"
    return _Kind(called, lambda value: isinstance(value, kind), plain=frozenset([kind]))


def _array(array: Any, number: type) -> Kind:
    letters = "b" if number.__name__ == "bool" else "iu" if issubclass(number, Integral) else "iuf"
    called = {"b": "truth values", "iu": "integers", "iuf": "numbers"}[letters]
    return _Kind(f"an array of {called}", lambda value: isinstance(value, array) and value.dtype.kind in letters)


@dataclass(frozen=True)
class _Either:
    kinds: list[Kind]

    @cached_property
    def plain(self) -> frozenset[type]:
        """See `Kind`."""
        return frozenset[type]().union(*(kind.plain for kind in self.kinds))

    def might_be(self, value: Any) -> bool:
        """See `Kind`."""
        return any(kind.might_be(value) for kind in self.kinds)

    @property
    def accepted(self) -> str:
        return " or ".join(kind.accepted for kind in self.kinds if kind is not _PLAIN[type(None)])

    def read(self, value: Any, what: str) -> Any:
        unfit: list[WeftError] = []
        for kind in self.kinds:
            if not kind.might_be(value):
                continue
            try:
                return kind.read(value, what)
            except WeftError as error:
                unfit.append(error)
        inner = next((error for error in unfit if not isinstance(error, Unfit) or error.inner), None)
        raise inner or Unfit(value, what, self.accepted)


def _item(what: str, at: int) -> str:
    return f"{what.rstrip(',')}, item {at},"


def _items(origin: type, item: Kind) -> Kind:
    """A collection of one kind of items; what may only be walked once is checked as it is walked."""
    called = "a set" if issubclass(origin, set | frozenset) else "a sequence"
    accepted = f"{called}, each item {item.accepted}"
    as_read: type | None = list if origin is list else None if origin in (set, frozenset) else tuple

    def accepts(value: Any) -> bool:
        given = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        return given and (origin not in (set, frozenset) or isinstance(value, set | frozenset))

    def read_items(value: Any, what: str) -> Any:
        if getattr(value, "ndim", 0) == 1:  # an array
            value = value.tolist()
        if isinstance(value, Iterator):
            return (item.read(one, _item(what, at)) for at, one in enumerate(value))
        if item is UNCHECKED:
            return value
        if as_read is not None and isinstance(item, Integer) and type(value) in (list, tuple) and item.fits_all(value):
            return as_read(value)
        read = [item.read(one, _item(what, at)) for at, one in enumerate(value)]
        return (as_read or type(value))(read)

    if as_read is not None and isinstance(item, Integer):
        return _Container(accepted, accepts, read_items, as_read, item.fits_all)
    return _Container(accepted, accepts, read_items)


def _fixed(items: list[Kind]) -> Kind:
    def read(value: Any, what: str) -> Any:
        return tuple(kind.read(one, _item(what, at)) for at, (kind, one) in enumerate(zip(items, value, strict=True)))

    return _Container(
        f"({', '.join(kind.accepted for kind in items)})",
        lambda value: isinstance(value, tuple | list) and len(value) == len(items), read,
    )


def _mapping(key: Kind = UNCHECKED, item: Kind = UNCHECKED) -> Kind:
    def read(value: Any, what: str) -> Any:
        for one in value:
            key.read(one, f"{what}, item {told(one)},")
            item.read(value[one], f"{what}, item {told(one)},")
        return value

    return _Container("a mapping", lambda value: isinstance(value, Mapping), read)


@dataclass(frozen=True)
class _Container(_Looked):
    accepted: str
    accepts: Callable[[Any], bool]
    read_items: Callable[[Any, str], Any]
    usual: type | None = None  # of which values whose items all fit are accepted as they are
    fits_all: Callable[[Any], bool] = lambda value: False

    def might_be(self, value: Any) -> bool:
        """See `Kind`."""
        return type(value) is self.usual or self.accepts(value)

    def read(self, value: Any, what: str) -> Any:
        if type(value) is self.usual and self.fits_all(value):
            return value
        if not self.accepts(value):
            raise Unfit(value, what, self.accepted)
        return self.read_items(value, what)


def _range(least: float, most: float, above: bool = False) -> str:
    low = "" if least in (-inf, -INT64) else f" above {least}" if above else f" from {least}"
    if most == inf:
        return low.replace("from", "of at least")
    wide = isinstance(most, int) and most > MOST_COUNT and most & (most + 1) == 0
    return f"{low}{',' if low and wide else ''} {f'below 2^{int(most).bit_length()}' if wide else f'to {most}'}"
