from ddpdoctor.blame.frames import Frame, lines, merge, parse_faulthandler
from ddpdoctor.blame.hang_analysis import late_ranks

MAIN, TRAIN = Frame("main", "train.py", 40), Frame("step", "train.py", 12)
WAIT = Frame("all_reduce", "/site-packages/torch/distributed/distributed_c10d.py", 2900)
SLEEP = Frame("evaluate", "train.py", 99)


def test_equal_stacks_are_one_branch():
    tree = merge({0: (MAIN, WAIT), 1: (MAIN, WAIT), 2: (MAIN, SLEEP), 3: (MAIN, WAIT)})
    assert list(lines(tree)) == [
        "ranks 0-3:",
        "  main (train.py:40)",
        "  ranks 0-1, 3:",
        f"    {WAIT}",
        "  rank 2:",
        f"    {SLEEP}",
    ]


def test_a_rank_that_stands_where_others_go_on():
    tree = merge({0: (MAIN,), 1: (MAIN, TRAIN)})
    assert "rank 0: here" in [line.strip() for line in lines(tree)]


def test_the_rank_that_is_not_in_a_collective_is_to_blame():
    stacks = {0: (MAIN, WAIT), 1: (MAIN, SLEEP), 2: (MAIN, WAIT)}
    assert late_ranks(stacks, {0: 5, 1: 5, 2: 5}) == (1,)


def test_without_stacks_the_rank_behind_is_to_blame():
    assert late_ranks({0: (), 1: (), 2: ()}, {0: 5, 1: 5, 2: 4}) == (2,)


def test_a_rank_that_shows_no_stack_is_to_blame_where_the_others_wait():
    assert late_ranks({0: (MAIN, WAIT), 1: (), 2: (MAIN, WAIT)}, {0: 5, 1: 5, 2: 5}) == (1,)


def test_nobody_is_to_blame_where_all_wait_alike():
    assert late_ranks({0: (WAIT,), 1: (WAIT,)}, {0: 5, 1: 5}) == ()


def test_the_interpreters_own_stack_is_read_outermost_first():
    text = (
        "Stack (most recent call first):\n"
        '  File "/a/b.py", line 3 in inner\n'
        '  File "/a/b.py", line 9 in <module>\n'
    )
    assert parse_faulthandler(text) == (Frame("<module>", "/a/b.py", 9), Frame("inner", "/a/b.py", 3))
