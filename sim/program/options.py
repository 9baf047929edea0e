"""Options of algorithms as they are written on the command line: NAME=VALUE."""

from fractions import Fraction

from topologies import WeftError

WORDS: dict[str, object] = {"true": True, "false": False, "none": None}


def parse_option(text: str) -> tuple[str, object]:
    """An option and its value: "trees=2" is ("trees", 2).

    WeftError: no name, or no value.
    """
    name, _, value = text.partition("=")
    if not name.strip() or not value.strip():
        raise WeftError(f"option {text!r}: write NAME=VALUE")
    return name.strip(), parse_value(value)


def parse_value(word: str) -> object:
    """A value as the number, the truth value or the text that it looks like.

    >>> [parse_value(word) for word in ("4", "0.5", "1/3", "true", "none", "16,-1")]
    [4, 0.5, Fraction(1, 3), True, None, '16,-1']
    """
    word = word.strip()
    if word in WORDS:
        return WORDS[word]
    if not word.isascii() or "_" in word:
        return word
    for kind in (int, float, Fraction):
        try:
            return kind(word)
        except (ValueError, ZeroDivisionError):
            continue
    return word
