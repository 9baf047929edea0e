"""Pickles of objects that hold functions: closures are stored by value, and one shared object by reference."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

_CACHED = functools._lru_cache_wrapper


def dumps(value: object, shared: object) -> bytes:
    """Bytes of `value`; wherever it refers to `shared`, it will refer to the one given to `loads`."""
    import cloudpickle  # by those alone who store a schedule or send it to another process

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # the library has no types
        def persistent_id(self, thing: object) -> str | None:
            return "shared" if thing is shared else None

        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, _CACHED) and "<locals>" in getattr(thing, "__qualname__", "<locals>"):
                return _cached, (thing.__wrapped__, thing.cache_parameters())  # the function goes, its cache stays
            return super().reducer_override(thing)

    stream = io.BytesIO()
    Pickler(stream).dump(value)
    return stream.getvalue()


def loads(data: bytes, shared: object) -> Any:
    """The value whose bytes these are. Like every pickle, only from a source that is trusted."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: object) -> object:
            return shared

    return Unpickler(io.BytesIO(data)).load()


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """A nested function behind an empty cache."""
    return functools.lru_cache(**parameters)(function)
