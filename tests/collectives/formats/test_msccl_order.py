"""MSCCL programs are judged by what their runtime guarantees: mutants of good ones, beside an independent judge."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collectives import build
from collectives.core.proof import ScheduleError
from collectives.formats.msccl import msccl_pattern, prove_msccl
from collectives.formats.msccl_order import Cut, cut_of
from collectives.formats.msccl_program import not_run, parse_msccl, told_limits
from collectives.formats.msccl_xml import to_msccl
from tests.oracles.msccl_checker import judge
from topologies import WeftError, from_spec, ring

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data" / "msccl"
KINDS = ("all-gather", "reduce-scatter", "all-reduce")
SPECS = (("switch:4", None), ("torus:2x3", 1), ("fc:3", None), ("dgx1:1", 1))
SIZES = (0, 2**20, 2**28)
SAMPLE, ALL = 150, 2000
STEP = '<step s="{s}" type="{type}" srcbuf="o" srcoff="{at}" dstbuf="o" dstoff="{at}" cnt="1" depid="{depid}" ' \
       'deps="{deps}" hasdep="{has}"/>'  # fmt: skip


@lru_cache(maxsize=1)
def good_programs() -> tuple[str, ...]:
    """Programs of our own, and the public ones where they are at hand."""
    texts = []
    for spec, k in SPECS:
        fabric = from_spec(spec)
        for kind in KINDS:
            texts.append(to_msccl(build("pipelined", kind, fabric, "1MiB", k=k)))
    files = [SHARED / name for name in ("ag_hier_4_LL.xml", "ar_tree_12_LL.xml")]
    return (*texts, *(path.read_text() for path in files if path.is_file()))


def ours(text: str, size_bytes: int) -> str:
    """The verdict of weft, in the words of the oracle."""
    try:
        algo = parse_msccl(text)
        prove_msccl(algo, cut_of(algo, size_bytes))
    except ScheduleError as wrong:
        message = str(wrong)
        words = {"hangs": "hangs", "races": "races", "which receives": "unpaired"}
        return next((verdict for word, verdict in words.items() if word in message), "wrong")
    except WeftError:
        return "unloadable"
    return "right"


def mutant(rng: random.Random) -> str:
    """A good program with one, two or three things changed."""
    root = ElementTree.fromstring(rng.choice(good_programs()))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice((drop, drop, drop, swap_blocks, swap_steps, move, recount, unflag, retarget, hurry))(root, rng)
    return ElementTree.tostring(root, encoding="unicode")


def steps_of(root: ElementTree.Element, waiting: bool = False) -> list[ElementTree.Element]:
    return [step for step in root.iter("step") if not waiting or step.attrib["depid"] != "-1"]


def drop(root: ElementTree.Element, rng: random.Random) -> None:
    """A dependency is forgotten."""
    if waiting := steps_of(root, waiting=True):
        rng.choice(waiting).attrib |= {"depid": "-1", "deps": "-1"}


def swap_blocks(root: ElementTree.Element, rng: random.Random) -> None:
    """Two thread blocks of a GPU exchange their steps, and keep their connections."""
    blocks = rng.choice(root.findall("gpu")).findall("tb")
    one, other = rng.choice(blocks), rng.choice(blocks)
    steps = list(one), list(other)
    for block, new in ((one, steps[1]), (other, steps[0])):
        for step in list(block):
            block.remove(step)
        block.extend(new)


def swap_steps(root: ElementTree.Element, rng: random.Random) -> None:
    """Two steps of a thread block exchange their places."""
    blocks = [block for block in root.iter("tb") if len(block) > 1]
    if not blocks:
        return
    block = rng.choice(blocks)
    steps = list(block)
    at = rng.randrange(len(steps) - 1)
    steps[at], steps[at + 1] = steps[at + 1], steps[at]
    for number, step in enumerate(steps):
        block.remove(step)
        step.attrib["s"] = str(number)
    block.extend(steps)


def move(root: ElementTree.Element, rng: random.Random) -> None:
    """An offset moves."""
    key = rng.choice(("srcoff", "dstoff"))
    step = rng.choice(steps_of(root))
    step.attrib[key] = str(max(0, int(step.attrib[key]) + rng.choice((-2, -1, 1, 2))))


def recount(root: ElementTree.Element, rng: random.Random) -> None:
    """A step moves another number of chunks."""
    rng.choice(steps_of(root)).attrib["cnt"] = str(rng.randrange(5))


def unflag(root: ElementTree.Element, rng: random.Random) -> None:
    """A step no longer publishes its end, or does so now."""
    step = rng.choice(steps_of(root))
    step.attrib["hasdep"] = str(1 - int(step.attrib["hasdep"]))


def retarget(root: ElementTree.Element, rng: random.Random) -> None:
    """A step waits for another one."""
    gpu = rng.choice(root.findall("gpu"))
    blocks = gpu.findall("tb")
    block = rng.randrange(len(blocks))
    if len(blocks[block]):
        wait = {"depid": str(block), "deps": str(rng.randrange(len(blocks[block])))}
        rng.choice(list(gpu.iter("step"))).attrib |= wait


def hurry(root: ElementTree.Element, rng: random.Random) -> None:
    """Another protocol, with another FIFO."""
    root.attrib["proto"] = rng.choice(("Simple", "LL", "LL128"))


def agree(seeds: range) -> Counter[str]:
    verdicts: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        text, size = mutant(rng), rng.choice(SIZES)
        expected = judge(text, size)
        assert ours(text, size) == expected, f"mutant {seed} of {size} B: {text}"
        verdicts[expected] += 1
    return verdicts


def test_good_programs_are_right_for_both_judges() -> None:
    for text in good_programs():
        for size in SIZES:
            assert ours(text, size) == judge(text, size) == "right"


def test_mutants_are_judged_as_the_oracle_judges_them() -> None:
    assert set(agree(range(SAMPLE))) == {"right", "unloadable", "unpaired", "hangs", "races", "wrong"}


@pytest.mark.verify
def test_two_thousand_mutants_are_judged_as_the_oracle_judges_them() -> None:
    verdicts = agree(range(10_000, 10_000 + ALL))
    assert min(verdicts.values()) >= 20, verdicts


def exchange(n: int, proto: str) -> str:
    """Two GPUs of one thread block each: n sends, then n receives."""
    gpus = []
    for gpu in range(2):
        steps = [("s", gpu * n + k) for k in range(n)] + [("r", (1 - gpu) * n + k) for k in range(n)]
        body = "".join(
            STEP.format(s=s, type=kind, at=at, depid=-1, deps=-1, has=0) for s, (kind, at) in enumerate(steps)
        )
        gpus.append(
            f'<gpu id="{gpu}" i_chunks="0" o_chunks="{2 * n}" s_chunks="0"><tb id="0" send="{1 - gpu}" '
            f'recv="{1 - gpu}" chan="0">{body}</tb></gpu>'
        )
    return (
        f'<algo name="exchange" proto="{proto}" nchannels="1" nchunksperloop="{2 * n}" ngpus="2" coll="allgather" '
        f'inplace="1" outofplace="0">{"".join(gpus)}</algo>'
    )


@pytest.mark.parametrize(("proto", "slots"), [("Simple", 2), ("LL", 8), ("LL128", 8)])
def test_sends_beyond_the_fifo_hang(proto: str, slots: int) -> None:
    prove_msccl(parse_msccl(exchange(slots, proto)))
    with pytest.raises(ScheduleError, match=re.escape("hangs: GPU")):
        prove_msccl(parse_msccl(exchange(slots + 1, proto)))


def test_a_step_that_is_cut_takes_more_slots() -> None:
    """Three chunks in one step fit the FIFO as one call and not as three."""
    text = exchange(3, "Simple")
    root = ElementTree.fromstring(text)
    for block in root.iter("tb"):
        for step in list(block)[1:3] + list(block)[4:]:
            block.remove(step)
        for number, step in enumerate(block):
            step.attrib |= {"s": str(number), "cnt": "3"}
    algo = parse_msccl(ElementTree.tostring(root, encoding="unicode"))
    prove_msccl(algo, cut_of(algo, 2**20))
    with pytest.raises(ScheduleError, match="hangs"):
        prove_msccl(algo, cut_of(algo, 2**30))


RACE = (
    '<algo name="race" proto="Simple" nchannels="2" nchunksperloop="1" ngpus="3" coll="allreduce" inplace="1">'
    '<gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">'
    '<tb id="0" send="1" recv="1" chan="0">{rrc}{s}</tb><tb id="1" send="2" recv="2" chan="0">{rrc2}{s2}</tb></gpu>'
    '<gpu id="1" i_chunks="1" o_chunks="0" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">{up}{down}</tb></gpu>'
    '<gpu id="2" i_chunks="1" o_chunks="0" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">{up}{down}</tb></gpu>'
    "</algo>"
)


def reduce_at_two_blocks(ordered: bool) -> str:
    """Two thread blocks of GPU 0 add to i[0]; the second one waits for the first, or does not."""

    def step(s: int, kind: str, wait: tuple[int, int] = (-1, -1), has: int = 0) -> str:
        text = STEP.format(s=s, type=kind, at=0, depid=wait[0], deps=wait[1], has=has)
        return text.replace('buf="o"', 'buf="i"')

    return RACE.format(
        rrc=step(0, "rrc", has=1), s=step(1, "s", (1, 0)), rrc2=step(0, "rrc", (0, 0) if ordered else (-1, -1), has=1),
        s2=step(1, "s"), up=step(0, "s"), down=step(1, "r"),
    )


def test_two_reductions_into_one_place_need_an_order() -> None:
    prove_msccl(parse_msccl(reduce_at_two_blocks(ordered=True)))
    with pytest.raises(ScheduleError, match=r"races: GPU 0, thread block 0, step 0 \(rrc\) and GPU 0, thread block 1"):
        prove_msccl(parse_msccl(reduce_at_two_blocks(ordered=False)))


def test_what_is_wrong_with_a_file_names_the_file(tmp_path: Path) -> None:
    """Not the name that the program gives itself, which many may share."""
    racing, hanging, other = (tmp_path / f"{name}.xml" for name in ("racing", "hanging", "other"))
    racing.write_text(reduce_at_two_blocks(ordered=False))
    hanging.write_text(exchange(3, "Simple"))
    other.write_text(exchange(1, "Simple"))
    for file, fabric, message in (
        (racing, "fc:3", "races: GPU 0"), (hanging, "fc:2", "hangs: GPU"), (other, "fc:4", "is for 2 GPUs"),
    ):
        kind = parse_msccl(file.read_text()).kind
        with pytest.raises(WeftError, match=f"^{re.escape(str(file))}:? {message}"):
            build(str(file), kind, from_spec(fabric), "1MiB")


@pytest.mark.parametrize(("least", "most", "message"), [
    ("8", "4", "minBytes=8 and maxBytes=4"), ("8", "8", ""), ("8", "0", ""), ("0", "4", ""),
])
def test_a_program_for_arrays_of_no_size_is_rejected(least: str, most: str, message: str) -> None:
    """Zero is no limit to some runtimes."""
    text = long_program(2, minBytes=least, maxBytes=most)
    if message:
        with pytest.raises(WeftError, match=f"^a.xml, line .*{message}"):
            parse_msccl(text, "a.xml")
    else:
        assert parse_msccl(text).bytes_span == (int(least), int(most))


def test_a_wait_for_a_step_that_never_publishes_hangs() -> None:
    algo = parse_msccl(reduce_at_two_blocks(ordered=True).replace('hasdep="1"', 'hasdep="0"'))
    with pytest.raises(ScheduleError, match="waits for ever: no step of thread block 1 from 0 on has hasdep=1"):
        prove_msccl(algo)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('chan="0"', 'chan="-7"', "chan='-7': give an integer from 0 to 0"),
        ('nchannels="1"', 'nchannels="0"', "nchannels='0': give an integer from 1 to 32"),
        ('proto="Simple"', 'proto="Foo"', "proto='Foo': accepted are Simple, LL, LL128"),
        ('s_chunks="0"', 's_chunks="-5"', "s_chunks='-5'"),
        ('o_chunks="2"', 'o_chunks="3"', "o_chunks=3: the array has 2"),
        ('srcoff="0"', 'srcoff="2"', r"touches o\[2\] to \[2\]: o_chunks=2 are declared"),
        ('srcoff="0"', 'srcoff="1_0"', "srcoff='1_0': give an integer"),
        ('inplace="1"', 'inplace="2"', "inplace='2': give an integer from 0 to 1"),
        ('inplace="1" outofplace="0"', 'inplace="0" outofplace="0"', "nobody could call it"),
        ('send="1"', 'send="2"', "send=2: give another GPU"),
        ('hasdep="0"', 'hasdep="yes"', "hasdep='yes': give an integer"),
    ],
)
def test_what_the_runtime_would_not_load_is_named(old: str, new: str, message: str) -> None:
    text = exchange(1, "Simple")
    assert old in text
    with pytest.raises(WeftError, match=message):
        parse_msccl(text.replace(old, new, 1))


def test_a_wrong_count_is_named_and_no_traceback() -> None:
    text = exchange(2, "Simple").replace('type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1"',
                                         'type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="2"')  # fmt: skip
    with pytest.raises(ScheduleError, match="GPU 0 sends 2 chunks to GPU 1 on channel 0 in call 0, which receives 1"):
        prove_msccl(parse_msccl(text))


def test_a_step_that_pairs_with_several_once_it_is_cut_is_named() -> None:
    text = exchange(2, "Simple")
    for gpu in range(2):
        sent = [STEP.format(s=s, type="s", at=2 * gpu + s, depid=-1, deps=-1, has=0) for s in range(2)]
        text = text.replace(sent[0], sent[0].replace('cnt="1"', 'cnt="2"'))
        text = text.replace(sent[1], sent[1].replace('type="s"', 'type="nop"'))
    algo = parse_msccl(text)
    prove_msccl(algo, Cut(most=1))
    with pytest.raises(ScheduleError, match=r"step 0 \(s\) pairs with 2 steps: let it"):
        msccl_pattern(algo, ring(2), Cut(most=1))


def long_program(steps: int, blocks: int = 1, kind: str = "nop", **attributes: str) -> str:
    """The exchange of two GPUs, with more steps in a thread block of GPU 0 and more thread blocks."""
    root = ElementTree.fromstring(exchange(1, "Simple"))
    root.attrib |= attributes
    gpu = root.find("gpu")
    assert gpu is not None
    for number in range(1, blocks):
        ElementTree.SubElement(gpu, "tb", {"id": str(number), "send": "-1", "recv": "-1", "chan": "-1"})
    block = gpu.findall("tb")[-1]
    for number in range(len(block), steps):
        block.append(ElementTree.fromstring(STEP.format(s=number, type=kind, at=0, depid=-1, deps=-1, has=0)))
    return ElementTree.tostring(root, encoding="unicode")


EXECUTOR = "msccl-executor-nccl"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (long_program(64), []),
        (long_program(65), [EXECUTOR, "rccl"]),
        (long_program(2, 64), []),
        (long_program(2, 65), ["rccl"]),
        (long_program(2, 127), ["rccl"]),
        (long_program(2, 128), [EXECUTOR, "rccl"]),
        (long_program(2, name="n" * 254), []),
        (long_program(2, name="n" * 255), [EXECUTOR, "rccl"]),
    ],
)
def test_limits_of_other_runtimes_are_known_by_name(text: str, refused: list[str]) -> None:
    assert list(parse_msccl(text).refused) == refused


def test_elements_are_counted() -> None:
    """64 thread blocks of 64 steps are more elements than two runtimes parse."""
    root = ElementTree.fromstring(long_program(2, 64))
    for gpu in root:
        for block in list(gpu)[1:]:
            for number in range(len(block), 64):
                block.append(ElementTree.fromstring(STEP.format(s=number, type="nop", at=0, depid=-1, deps=-1, has=0)))
    refused = parse_msccl(ElementTree.tostring(root, encoding="unicode")).refused
    assert list(refused) == [EXECUTOR, "rccl"]
    assert all(why.endswith("elements: at most 4096") for why in refused.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (long_program(257), "has 257 steps in thread block 0 of GPU 0: at most 256"),
        (long_program(2, 217), "has 217 thread blocks on GPU 0: at most 216"),
        (exchange(1, "Simple").replace('srcoff="0"', 'srcoff="32768"', 1), "srcoff='32768': give an integer from -1"),
        (long_program(2 + 17, kind="re"), "step 18 is reduction 17 in a row into one place: at most 16"),
    ],
)
def test_what_no_runtime_loads_is_refused(text: str, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        parse_msccl(text)


def test_a_flag_between_reductions_ends_their_row() -> None:
    text = long_program(2 + 17, kind="re")
    at = text.index('s="10"')
    parse_msccl(text[:at] + text[at:].replace('hasdep="0"', 'hasdep="1"', 1))


def test_a_runtime_that_is_named_holds_its_limits(tmp_path: Path) -> None:
    """Others are noted where none is named."""
    fabric, file = from_spec("switch:2"), tmp_path / "p.xml"
    file.write_text(long_program(65))
    schedule = build(str(file), "all-gather", fabric, "1MiB")
    assert schedule.pattern.note.startswith("msccl-executor-nccl does not load it: 65 steps in thread block 0 of GPU 0")
    assert not build(str(file), "all-gather", fabric, "1MiB", runtime="msccl").pattern.note
    with pytest.raises(WeftError, match=r"rccl does not run .*: it has 65 steps in thread block 0"):
        build(str(file), "all-gather", fabric, "1MiB", runtime="rccl")
    with pytest.raises(WeftError, match="runtime 'nccl' is unknown: choose one of msccl, msccl-executor-nccl, rccl"):
        build(str(file), "all-gather", fabric, "1MiB", runtime="nccl")


@pytest.mark.parametrize(
    ("runtime", "span", "runs"),
    [
        ("msccl", {}, {2**27 - 1: True, 2**27: False}),
        ("msccl", {"minBytes": "8", "maxBytes": "64"}, {4: False, 8: True, 60: True, 64: False}),
        ("rccl", {"minBytes": "8", "maxBytes": "64"}, {4: False, 8: True, 64: True, 68: False}),
        (EXECUTOR, {"minBytes": "8", "maxBytes": "0"}, {4: False, 2**30: True}),
    ],
)
def test_sizes_that_a_runtime_leaves_aside_are_told(runtime: str, span: dict[str, str], runs: dict[int, bool]) -> None:
    algo = parse_msccl(long_program(2, **span))
    assert {size: not not_run(algo, runtime, size) for size in runs} == runs
    assert ("no runtime uses it here" in told_limits(algo, 4)) == ("minBytes" in span)


def test_what_nops_wait_for_holds_the_next_step_that_waits_itself() -> None:
    """The runtime does not execute them: a step after them that names nothing starts at once, and races."""
    ordered = reduce_at_two_blocks(ordered=True)
    root = ElementTree.fromstring(ordered)
    block = root.findall("gpu")[0].findall("tb")[1]
    nop = ElementTree.fromstring(STEP.format(s=0, type="nop", at=0, depid=0, deps=0, has=0))
    block.insert(0, nop)
    for number, step in enumerate(block):
        step.attrib["s"] = str(number)
    first = root.findall("gpu")[0].findall("tb")[0]
    first[1].attrib["deps"] = "1"
    text = ElementTree.tostring(root, encoding="unicode")
    assert ours(text, 0) == judge(text, 0) == "right"
    block[1].attrib |= {"depid": "-1", "deps": "-1"}
    text = ElementTree.tostring(root, encoding="unicode")
    assert ours(text, 0) == judge(text, 0) == "races"
