"""The homomorphic codec with lists and integers: no layout object, no compiled loop, no wrap-around."""

from __future__ import annotations


def murmur(key: int, seed: int) -> int:
    """MurmurHash3_x86_32 of four little-endian bytes."""

    def turn(word: int, by: int) -> int:
        return ((word << by) | (word >> (32 - by))) % 2**32

    k = turn(key * 0xCC9E2D51 % 2**32, 15) * 0x1B873593 % 2**32
    h = (turn(seed ^ k, 13) * 5 + 0xE6546B64) % 2**32 ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return h ^ h >> 16


def cells_of(
    element: int, rows: int, lanes: int, rotated: bool, split: bool, seed: int, apart: int = 0
) -> list[tuple[int, int]]:
    """(cell, sign) of an element under each of the three hashes; a block's are neighbors unless `apart`."""
    block, lane = (element % apart, element // apart) if apart and lanes > 1 else divmod(element, lanes)
    found = []
    for j in range(3):
        word = murmur(block, seed + j)
        row = rows // 3 * j + word % (rows // 3) if split else word % rows
        turn = murmur(block, seed + 50 + j) if rotated else 0
        found.append((row * lanes + (lane + turn) % lanes, -1 if word >= 2**31 else 1))
    return found


def encode(x: list[int], rows: int, lanes: int, rotated: bool, split: bool, seed: int, apart: int = 0) -> list[int]:
    """The sketch of one worker."""
    cells = [0] * (rows * lanes)
    for element, value in enumerate(x):
        for cell, sign in cells_of(element, rows, lanes, rotated, split, seed, apart):
            cells[cell] += sign * value
    return cells


def decode(
    cells: list[int], union: list[int], rows: int, lanes: int, rotated: bool, split: bool, seed: int,
    apart: int = 0,
) -> tuple[dict[int, int], int, int]:
    """Values recovered by peeling in rounds, the number of rounds, and the cells that are left."""
    cells = list(cells)
    places = {element: cells_of(element, rows, lanes, rotated, split, seed, apart) for element in union}
    found: dict[int, int] = {}
    rounds = 0
    while True:
        items: dict[int, list[int]] = {}
        for element, pairs in places.items():
            for cell, _ in pairs:
                items.setdefault(cell, []).append(element)
        lonely = {mine[0]: cell for cell, mine in items.items() if len(mine) == 1}
        if not lonely:
            return found, rounds, sum(value != 0 for value in cells)
        rounds += 1
        for element, lonely_cell in lonely.items():
            pairs = places.pop(element)
            value = next(sign * cells[cell] for cell, sign in pairs if cell == lonely_cell)
            found[element] = value
            for cell, sign in pairs:
                cells[cell] -= sign * value
