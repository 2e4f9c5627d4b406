from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Parameter
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import raising

MESSAGE = (
    "DDP expects same model across all ranks, but Rank {rank} has 4 params, while rank 1 has inconsistent 2."
)


def wrapping(parameters, ranks=(1,)):
    def change(rank, one):
        return (
            replace(one, wrappers=(replace(one.wrappers[0], parameters=parameters),))
            if rank in ranks
            else one
        )

    return change


WIDER = (Parameter("weight", (5,), "float32"), Parameter("bias", (4,), "float32"))
FROZEN = (Parameter("weight", (4,), "float32"), Parameter("bias", (4,), "float32", requires_grad=False))
MORE = (*(Parameter(key, (4,), "float32") for key in ("weight", "bias")), Parameter("head", (2,), "float32"))
SWAPPED = tuple(Parameter(key, (4,), "float32") for key in ("bias", "weight"))


def headline(parameters):
    finding = only_finding("DD214", Source.RUN, recorded(3, wrapping(parameters)))
    assert finding.ranks == (1,)
    assert finding.where == where(30)
    return finding.headline


def test_what_differs_is_named():
    start = "Linear on rank 1 differs from the one on rank 0: "
    assert headline(WIDER) == start + "weight is 5 float32, not 4 float32"
    assert headline(FROZEN) == start + "bias is 4 float32 without gradient, not 4 float32"
    assert headline(MORE) == start + "head added"
    assert headline(SWAPPED) == start + "its 2 parameters are in a different order"


def test_the_parameters_tell_more_than_the_exception():
    finding = only_finding("DD214", Source.RUN, raising(MESSAGE, change=wrapping(MORE)))
    assert finding.headline.endswith("head added")


def test_the_exception_where_no_parameters_were_seen():
    finding = only_finding(
        "DD214", Source.RUN, raising(MESSAGE, line=31, change=lambda r, one: replace(one, wrappers=()))
    )
    assert finding.headline == (
        "DistributedDataParallel refuses the model of ranks 0-1: it is not the same on every rank"
    )
    assert finding.where == where(31)


def test_stages_of_other_process_groups_are_other_models():
    def change(rank, one):
        one = wrapping(MORE)(rank, one)
        return replace(one, wrappers=(replace(one.wrappers[0], ranks=(rank,)),))

    passed("DD214", Source.RUN, recorded(2, change))


def test_equal_models_pass_and_none_is_skipped():
    assert passed("DD214", Source.RUN, recorded(2)).text == "all ranks wrap the same 2 parameters"
    assert skipped("DD214", Source.RUN, recorded(2, lambda r, one: replace(one, wrappers=()))).reason
