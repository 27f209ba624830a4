import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.condition import (
    DEEPEST,
    Combination,
    Combine,
    Compare,
    Condition,
    Op,
    flatten,
    negate,
    pack_condition,
    unpack_condition,
)
from terrazzo.format.wire import Cursor, Writer

A, B, C = (Compare(Op.EQ, name, b"\x01") for name in "abc")


def packed(node: Condition) -> bytes:
    writer = Writer()
    pack_condition(node, writer)
    return bytes(writer)


def both(*children: Condition) -> Combine:
    return Combine(Combination.AND, children)


def either(*children: Condition) -> Combine:
    return Combine(Combination.OR, children)


def test_a_set_is_stored_as_its_members_and_their_offsets() -> None:
    stored = bytes.fromhex(
        "01 07 01000000 61 0800000000000000 5a000000 3c000000"
        "1000000000000000 0000000000000000 0400000000000000"
    )
    node = Compare(Op.NOT_IN, "a", members=(b"\x5a\0\0\0", b"\x3c\0\0\0"))

    assert unpack_condition(Cursor(stored)) == node
    assert packed(node) == stored


def test_a_combination_counts_its_children() -> None:
    node = both(A, either(B, C))

    assert packed(node).startswith(bytes.fromhex("00 00 0200000000000000 01 04 01000000 61"))
    assert unpack_condition(Cursor(packed(node))) == node


def test_the_cursor_is_left_behind_the_tree() -> None:
    cursor = Cursor(packed(A) + b"rest")
    unpack_condition(cursor)

    assert bytes(cursor.rest()) == b"rest"


def test_negation_reaches_the_tests() -> None:
    node = both(Compare(Op.LT, "a", b"\x01"), either(Compare(Op.IN, "b", members=(b"x",)), B))
    opposite = either(Compare(Op.GE, "a", b"\x01"), both(Compare(Op.NOT_IN, "b", members=(b"x",)), negate(B)))

    assert negate(node) == opposite
    assert negate(opposite) == node


@pytest.mark.parametrize("op", Op)
def test_every_operator_has_an_opposite(op: Op) -> None:
    assert op.negated is not op
    assert op.negated.negated is op


def test_flattening_merges_equal_levels_and_drops_combinations_of_one() -> None:
    node = both(both(A, both(B)), either(C))

    assert flatten(node) == both(A, B, C)
    assert flatten(both(either(both(A)))) == A
    assert flatten(both(A, either(B, C))) == both(A, either(B, C))


def test_flattening_carries_not_down() -> None:
    assert flatten(Combine(Combination.NOT, (both(A, B),))) == either(negate(A), negate(B))
    assert flatten(both(A, Combine(Combination.NOT, (either(B, C),)))) == both(A, negate(B), negate(C))


def test_flattening_takes_a_chain_of_any_length() -> None:
    chain: Condition = A
    for _ in range(5000):
        chain = either(chain, B)

    assert len(flatten(chain).children) == 5001


def test_a_tree_that_is_too_deep_is_damage_and_is_not_written() -> None:
    level = bytes.fromhex("00 00 0100000000000000")
    node: Condition = A
    for _ in range(DEEPEST):
        node = both(node)

    with pytest.raises(CorruptionError, match="levels"):
        unpack_condition(Cursor(level * DEEPEST + packed(A)))
    with pytest.raises(InvalidRequestError, match="levels"):
        packed(node)


@pytest.mark.parametrize(
    "stored",
    [
        "02",
        "00 03 0100000000000000 01 04 01000000 61 0000000000000000",
        "00 00 0000000000000000",
        "00 00 ffffffffffffffff",
        "00 02 0200000000000000" + 2 * "01 04 01000000 61 0000000000000000",
        "01 08 01000000 61 0000000000000000",
        "01 04 01000000 ff 0000000000000000",
        "01 06 01000000 61 0100000000000000 05 0700000000000000 00000000000000",
        "01 06 01000000 61 0100000000000000 05 0800000000000000 0100000000000000",
        "01 06 01000000 61 0100000000000000 05 0800000000000000 0200000000000000",
        "01 06 01000000 61 0100000000000000 05 0000000000000000",
    ],
)
def test_damage_is_found(stored: str) -> None:
    with pytest.raises(CorruptionError):
        unpack_condition(Cursor(bytes.fromhex(stored)))


def test_an_operator_and_its_value_must_agree() -> None:
    with pytest.raises(InvalidRequestError):
        Compare(Op.IN, "a", b"\x01")
    with pytest.raises(InvalidRequestError):
        Compare(Op.EQ, "a", members=(b"\x01",))
    with pytest.raises(InvalidRequestError):
        Combine(Combination.AND, ())


def test_a_tree_knows_its_fields() -> None:
    assert both(A, either(B, A)).fields == {"a", "b"}
