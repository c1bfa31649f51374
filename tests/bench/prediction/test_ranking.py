"""How many pairs of groups were predicted in the order in which they were measured."""

from __future__ import annotations

from pointsman.bench.prediction.ranking import Ranked, WrongPair, agreement, together


def test_pairs_in_the_measured_order_are_right_whichever_of_them_is_named_first():
    slow, fast = Ranked("slow", 20.0, 18.0, 22.0), Ranked("fast", 11.0, 9.0, 10.0)
    for pair in ([slow, fast], [fast, slow]):
        found = agreement(pair)
        assert (found.right, found.counted, found.fraction) == (1, 1, 1.0)


def test_a_pair_predicted_the_other_way_round_is_named():
    found = agreement([Ranked("a", 5.0, 18.0, 22.0), Ranked("b", 6.0, 9.0, 10.0)])
    assert (found.right, found.counted) == (0, 1)
    assert found.wrong == (WrongPair(lower="b", higher="a"),)


def test_groups_that_are_predicted_to_be_alike_were_not_told_apart():
    found = agreement([Ranked("a", 5.0, 18.0, 22.0), Ranked("b", 5.0, 9.0, 10.0)])
    assert (found.right, found.counted) == (0, 1)


def test_overlapping_intervals_are_left_out_and_so_are_touching_ones():
    a, b, touching = Ranked("a", 1.0, 10.0, 20.0), Ranked("b", 2.0, 15.0, 25.0), 25.0
    found = agreement([a, b, Ranked("c", 3.0, touching, 30.0)])
    assert (found.counted, found.overlapping) == (1, 2)  # a against c alone
    assert found.right == 1


def test_a_group_that_was_measured_once_is_in_no_pair():
    once = Ranked("once", 1.0, None, None)
    found = agreement([once, Ranked("a", 1.0, 0.0, 1.0), Ranked("b", 9.0, 8.0, 9.5)])
    assert (found.counted, found.without_interval) == (1, 2)


def test_nothing_to_count_has_no_fraction():
    assert agreement([Ranked("a", 1.0, 0.0, 2.0)]).fraction is None


def test_several_figures_are_counted_together():
    right = agreement([Ranked("a", 1.0, 0.0, 1.0), Ranked("b", 2.0, 3.0, 4.0)])
    wrong = agreement([Ranked("a", 2.0, 0.0, 1.0), Ranked("b", 1.0, 3.0, 4.0)])
    whole = together([right, wrong, right])
    assert (whole.right, whole.counted) == (2, 3)
    assert whole.wrong == (WrongPair("a", "b"),)
