"""DD223 on a training run."""

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Parameter, Wrapper
from tests.support.judging import check, only_finding
from tests.support.recordings import recorded, replace, where

REFUSED = (
    "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient."
)


def frozen(*ranks):
    """Ranks on which the wrap is refused, since the module is frozen there."""

    def change(rank, one):
        if rank not in ranks:
            return one
        parameters = (Parameter("weight", (4,), "float32", False), Parameter("bias", (4,), "float32", False))
        wrapper = Wrapper(0, where(30), 0.1, "Linear", parameters, failed=f"RuntimeError: {REFUSED}")
        return replace(one, wrappers=(wrapper,), raised=Raised("RuntimeError", REFUSED, 0.2, at=where(30)))

    return recorded(change=change)


def test_a_module_that_is_frozen_on_every_rank():
    finding = only_finding("DD223", Source.RUN, frozen(0, 1))
    assert (finding.where, finding.ranks) == (where(30), (0, 1))


def test_a_module_that_is_frozen_on_one_rank_is_one_that_differs():
    differs = only_finding("DD214", Source.RUN, frozen(1))
    assert (differs.where, differs.ranks) == (where(30), (1,))
    assert differs.code in check("DD223").explained_by
