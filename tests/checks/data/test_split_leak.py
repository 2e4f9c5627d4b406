from ddpdoctor.model import Source
from ddpdoctor.trace.data import Split
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import evaluating
from tests.support.recordings import recorded, replace, where


def split(*parts_of, loaders=(0, 7), change=None):
    """Parts of a dataset of 6 samples, of each rank."""

    def of(rank, one):
        own = evaluating(one, parts_of[rank][-1])
        made = replace(own, splits=(Split(where(33), 6, parts_of[rank], loaders),))
        return change(rank, made) if change else made

    return recorded(len(parts_of), of)


def test_a_split_of_each_ranks_own():
    finding = only_finding("DD107", Source.RUN, split(((0, 1, 2, 3), (4, 5)), ((2, 3, 4, 5), (0, 1))))
    assert finding.headline == "rank 0 trains on 2 of the 2 samples that rank 1 holds out"
    assert finding.where == where(33)
    assert finding.evidence[0].text == "holds out 2 of 6 samples; another rank trains on 2 of them"


def test_parts_hidden_in_another_dataset():
    trace = split(((0, 1, 2, 3), (4, 5)), ((2, 3, 4, 5), (0, 1)), loaders=(None, None))
    only_finding("DD107", Source.RUN, trace)


def test_one_split_for_all_passes():
    said = passed("DD107", Source.RUN, split(((0, 1, 2, 3), (4, 5)), ((0, 1, 2, 3), (4, 5))))
    assert said.text == "no rank trains on any of the 2 samples that are held out"


def test_disjoint_parts_of_each_ranks_own_are_right():
    passed("DD107", Source.RUN, split(((0, 1), (4,)), ((2, 3), (5,))))


def test_evaluating_a_part_of_the_training_data_is_right():
    skipped("DD107", Source.RUN, split(((0, 1, 2, 3), (0, 1)), ((0, 1, 2, 3), (0, 1))))


def test_folds_of_models_of_their_own_are_right():
    def alone(rank, one):
        return replace(one, wrappers=())

    trace = split(((0, 1, 2, 3), (4, 5)), ((2, 3, 4, 5), (0, 1)), change=alone)
    assert skipped("DD107", Source.RUN, trace).reason == "the ranks do not train one model"


def test_no_split_is_skipped():
    assert "no dataset was split" in skipped("DD107", Source.RUN, recorded()).reason
