from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import WeftError, bytes_per_s, seconds, torus
from topologies.units import (
    MOST_PS,
    PS_PER_S,
    counted,
    format_rate,
    format_size,
    format_time,
    from_bytes_per_s,
    from_nanoseconds,
    from_seconds,
    parse_bandwidth,
    parse_flops,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "rate_Bps"),
    [
        ("400Gb/s", 50e9),
        ("400Gbps", 50e9),
        ("50GB/s", 50e9),
        ("50 GB/s", 50e9),
        ("50GiB/s", 50 * 2**30),
        ("1.5Tb/s", 187.5e9),
        ("8b/s", 1.0),
        ("1e3kB/s", 1e6),
        (".5MB/s", 5e5),
    ],
)
def test_bandwidth(text, rate_Bps):
    assert parse_bandwidth(text) == rate_Bps


FACTORS = {
    "": 1, "k": 1000, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4, "P": 1000**5,
    "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5,
}


@pytest.mark.parametrize(("prefix", "factor"), FACTORS.items())
def test_every_prefix_with_every_unit(prefix, factor):
    """Of rates, sizes and rates of computation; a byte is eight bits, and each prefix has one meaning."""
    assert [parse_bandwidth(f"3{prefix}{unit}") for unit in ("B/s", "Bps")] == [3 * factor] * 2
    assert [parse_bandwidth(f"3{prefix}{unit}") for unit in ("b/s", "bps")] == [3 * factor / 8] * 2
    assert parse_size(f"3{prefix}B") == 3 * factor
    if "i" in prefix:
        with pytest.raises(WeftError, match="no rate of operations"):
            parse_flops(f"3{prefix}FLOPS")
    else:
        assert parse_flops(f"3{prefix}FLOPS") == parse_flops(f"3{prefix}FLOP/s") == 3 * factor


@pytest.mark.parametrize("wrong", ["ki", "mi", "gi", "ti", "pi", "m", "g", "t", "p", "i", "Ei", "E"])
def test_no_other_prefix(wrong):
    for parse, unit in ((parse_bandwidth, "B/s"), (parse_bandwidth, "b/s"), (parse_size, "B"), (parse_flops, "FLOPS")):
        with pytest.raises(WeftError):
            parse(f"3{wrong}{unit}")


@pytest.mark.parametrize(
    "bad", ["400", "400G", "400 Gb", "fast", "", "0Gb/s", "-1GB/s", 0, 400, 50e9, None, True]
)
def test_bandwidth_refused_by_name(bad):
    with pytest.raises(WeftError, match="uplink"):
        parse_bandwidth(bad, "uplink")


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("8KiB", 8192), ("2MB", 2_000_000), ("512B", 512), ("1.5KiB", 1536), ("0B", 0), ("2 GiB", 2**31), (17, 17)],
)
def test_size(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("bad", ["8X", "8Ki", "8Kb", "0.5B", "-1B", "0.5", "", -1, 0.5, float("inf")])
def test_size_refused_by_name(bad):
    with pytest.raises(WeftError, match="message"):
        parse_size(bad, "message")


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("32", 32), ("8K", 8192), ("8k", 8192), ("1.5M", 3 * 2**19), ("512M", 2**29), ("1MB", 10**6)],
)
def test_sizes_without_a_unit_are_base_two_as_in_nccl_tests(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "time_ps"),
    [("300ns", 300_000), ("1.5us", 1_500_000), ("7 ps", 7), ("2s", 2 * 10**12), ("1ms", 10**9), (0, 0)],
)
def test_time(text, time_ps):
    assert parse_time(text) == time_ps


@pytest.mark.parametrize("bad", ["300", "300 n", "0.5ps", "-1ns", -1e-9, 1e-7, 3, True, None])
def test_time_refused_by_name(bad):
    with pytest.raises(WeftError, match="hop"):
        parse_time(bad, "hop")


@given(st.integers(0, 10**15))
def test_time_survives_seconds_as_a_float(time_ps):
    assert from_seconds(time_ps / 10**12) == parse_time(seconds(time_ps / 10**12)) == time_ps


@given(st.floats(1e-300, 1e300))
def test_bandwidth_survives_as_text(rate_Bps):
    assert parse_bandwidth(bytes_per_s(rate_Bps)) == from_bytes_per_s(rate_Bps) == rate_Bps


@pytest.mark.parametrize("bad", [0, -3.0, float("inf"), float("nan")])
def test_raw_bandwidth_refused_by_name(bad):
    with pytest.raises(WeftError, match="uplink"):
        from_bytes_per_s(bad, "uplink")


@pytest.mark.parametrize("bad", [-1e-9, float("inf"), float("nan"), 1e300])
def test_raw_time_refused_by_name(bad):
    with pytest.raises(WeftError, match="hop"):
        from_seconds(bad, "hop")


@pytest.mark.parametrize("bare", [400, 50e9, ("400Gb/s", 400)])
def test_bare_number_where_a_unit_is_needed_says_what_to_write(bare):
    with pytest.raises(WeftError, match=r"bandwidth (400|50000000000\.0) has no unit: write text such as 400Gb/s"):
        torus((4, 4), bandwidth=bare)
    with pytest.raises(WeftError, match="latency 300 has no unit: write text such as 300ns"):
        torus((4, 4), hop_latency=300)


@given(st.integers(1, 4 * 10**6), st.sampled_from(["ps", "ns", "us", "ms", "s"]))
def test_time_text_is_exact(number, unit):
    scale = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12}[unit]
    assert parse_time(f"{number}{unit}") == number * scale


@given(st.integers(1, 10**6), st.sampled_from("kMGT"))
def test_a_byte_is_eight_bits(number, prefix):
    assert Fraction(parse_bandwidth(f"{number}{prefix}B/s")) == 8 * Fraction(parse_bandwidth(f"{number}{prefix}b/s"))


def test_formats_print_sizes_base_two_and_rates_base_ten():
    assert [format_size(size) for size in (0, 512, 8192, 3 * 2**19)] == ["0 B", "512 B", "8 KiB", "1.5 MiB"]
    assert format_size(10**400) == "more than 1e+300 B"
    assert [format_rate(rate) for rate in (0.5, 50e9, 2.5e12)] == ["0.5 B/s", "50 GB/s", "2.5 TB/s"]
    assert [counted(count, "chunk") for count in (0, 1, 4096)] == ["0 chunks", "1 chunk", "4,096 chunks"]
    assert [format_time(time) for time in (7, 7_140_000, 2 * 10**12)] == ["7 ps", "7.14 us", "2 s"]


@pytest.mark.parametrize(("least", "text"), [
    (1, "1 ps"), (999, "999 ps"), (10**3, "1 ns"), (10**6 - 1000, "999 ns"), (10**6, "1 us"), (10**9 - 10**6, "999 us"),
    (10**9, "1 ms"), (10**12 - 10**9, "999 ms"), (10**12, "1 s"), (-(10**3), "-1 ns"), (10**300, "1e+288 s"),
    (10**300 + 1, "more than 1e+288 s"),
])
def test_times_change_their_unit_at_its_size(least, text):
    assert format_time(least) == text


@pytest.mark.parametrize(("size", "text"), [
    (1023, "1023 B"), (2**10, "1 KiB"), (2**20, "1 MiB"), (2**30, "1 GiB"), (2**40, "1 TiB"), (2**50, "1 PiB"),
    (10**300, f"{10**300 / 2**50:.4g} PiB"), (10**300 + 1, "more than 1e+300 B"),
])
def test_sizes_change_their_unit_at_its_size(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(("rate", "text"), [
    (999.0, "999 B/s"), (1e3, "1 kB/s"), (1e6, "1 MB/s"), (1e9, "1 GB/s"), (1e12, "1 TB/s"),
])
def test_rates_change_their_unit_at_its_size(rate, text):
    assert format_rate(rate) == text


def test_one_is_counted_alone():
    assert [counted(many, "chunk") for many in (0, 1, 2, 1000)] == ["0 chunks", "1 chunk", "2 chunks", "1,000 chunks"]


def test_the_ends_of_ranges_are_in_them():
    """The last picosecond of the clock, the least size, and nothing."""
    assert parse_time(f"{MOST_PS}ps") == MOST_PS == from_seconds(Fraction(MOST_PS, PS_PER_S))
    assert from_nanoseconds(1.5, "hop") == 1500 and from_nanoseconds(4.6e15, "hop") == 46 * 10**17
    assert parse_size("8B", least=8) == 8 and parse_size("0B") == parse_size("0") == parse_size(0) == 0
    assert parse_size("1.5K") == 1536 and parse_size("3G") == 3 * 2**30 and parse_size("2T") == 2**41
    with pytest.raises(WeftError, match=f"hop '{MOST_PS + 1}ps' exceeds the range of the clock"):
        parse_time(f"{MOST_PS + 1}ps", "hop")
    with pytest.raises(WeftError, match="exceeds the range of the clock"):
        from_nanoseconds(4.7e15, "hop")
    with pytest.raises(WeftError, match=r"hop takes 1e\+07 s, which exceeds"):
        from_nanoseconds(1e16, "hop")
    with pytest.raises(WeftError, match="message '7B' is less than 8B"):
        parse_size("7B", "message", least=8)
    with pytest.raises(WeftError, match="message '-1B' is negative"):
        parse_size("-1B", "message")
    with pytest.raises(WeftError, match="message '-1K' is negative"):
        parse_size("-1K", "message")
    with pytest.raises(WeftError, match="message 'K' is not a size: write bytes"):
        parse_size("K", "message")
    for nothing in (False, 0.0, 1):
        with pytest.raises(WeftError, match="has no unit"):
            parse_time(nothing)
    with pytest.raises(WeftError, match="must be above zero and finite"):
        parse_bandwidth("1e400GB/s")
