"""Pickles of objects that hold functions: closures are stored by value, some shared objects by reference."""

import functools
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

_CACHED = functools._lru_cache_wrapper


def dumps(value: object, shared: Sequence[object]) -> bytes:
    """Bytes of `value`; references to one of `shared` become references to the one in its place given to `loads`."""
    import cloudpickle  # by those alone who store a schedule or send it to another process

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # the library has no types
        def persistent_id(self, thing: object) -> int | None:
            return next((at for at, one in enumerate(shared) if thing is one), None)

        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, _CACHED) and "<locals>" in getattr(thing, "__qualname__", "<locals>"):
                return _cached, (thing.__wrapped__, thing.cache_parameters())  # the function goes, its cache stays
            return super().reducer_override(thing)

    stream = io.BytesIO()
    Pickler(stream).dump(value)
    return stream.getvalue()


def loads(data: bytes, shared: Sequence[object]) -> Any:
    """The value whose bytes these are. Like every pickle, only from a source that is trusted."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, at: Any) -> object:
            return shared[at]

    return Unpickler(io.BytesIO(data)).load()


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """A nested function behind an empty cache."""
    return functools.lru_cache(**parameters)(function)
