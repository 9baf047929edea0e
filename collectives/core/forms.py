"""Forms of an algorithm."""

from __future__ import annotations

from collections.abc import Sequence

from topologies import WeftError


def check_form(algorithm: str, form: str | None, forms: Sequence[str]) -> None:
    """Reject a form that an algorithm does not have; None means its default.

    WeftError: no such form.
    """
    if form is not None and form not in forms:
        raise WeftError(f"{algorithm} has no form {form!r}: choose one of {', '.join(forms)}")
