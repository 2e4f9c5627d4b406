"""What the recorder sees of wrappers: what goes through them and around them, and which backwards reduce."""

import pytest

from ddpdoctor.recorder.events.training import CopyForward
from tests.recorder.trained import line_of, record, reduced, run, write
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow


def test_accumulation(tmp_path):
    seen = record(
        tmp_path,
        """
        model = DDP(nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            with model.no_sync() if step % 2 == 0 else contextlib.nullcontext():
                model(torch.randn(3, 4)).sum().backward()
            if step % 2:
                optimizer.step()
        """,
    )
    assert reduced(seen) == [[(), (0,)], [(), (0,)]]
    assert [one.synced for one in seen.steps[0].forwards] == [False, True]


def test_a_second_backward_does_not_reduce(tmp_path):
    seen = record(
        tmp_path,
        """
        model = DDP(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        one, two = model(torch.randn(3, 4)).mean(), model(torch.randn(3, 4)).mean()
        one.backward()
        two.backward()
        optimizer.step()
        """,
    )
    assert reduced(seen) == [[(0,), ()]]


def test_two_wrappers_that_share_a_group(tmp_path):
    seen = record(
        tmp_path,
        """
        critic, maker = DDP(nn.Linear(4, 1)), DDP(nn.Linear(2, 4))
        first, second = (torch.optim.Adam(one.parameters()) for one in (critic, maker))
        fake = maker(torch.randn(3, 2))
        critic(torch.randn(3, 4)).mean().backward()
        critic(fake.detach()).mean().backward()
        first.step()
        critic(fake).mean().backward()
        second.step()
        """,
    )
    assert reduced(seen) == [[(0,), (0,)], [(0, 1)]]
    assert seen.optimizers[1].keys == ("weight (wrapper 1)", "bias (wrapper 1)")


@pytest.mark.parametrize(
    "call", ["model.module(data).mean()", "model.module.loss(data)", "inner.forward(data).mean()"]
)
def test_a_forward_around_the_wrapper(tmp_path, call):
    seen = record(
        tmp_path,
        f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2))
            def forward(self, data):
                return self.head(self.body(data))
            def loss(self, data):
                return self.forward(data).mean()
        inner = Net()
        model, average = DDP(inner), copy.deepcopy(inner)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.randn(3, 4)
        {call}.backward()
        optimizer.step()
        model(data).mean().backward()
        optimizer.step()
        with torch.no_grad():
            average(data)
        """,
    )
    (around,), (right,) = (step.forwards for step in seen.steps)
    assert (around.around, right.around) == (True, False)
    assert around.at.line == line_of(tmp_path, call)
    assert reduced(seen) == [[()], [(0,)]]
    assert [(one.wrapper, one.number) for one in seen.events(CopyForward)] == [(0, 0)]
    assert seen.trailing is None


def test_parameters_by_name_wherever_they_are(tmp_path):
    seen = record(
        tmp_path,
        """
        class Arc(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.sub = nn.Parameter(torch.randn(4, 4)), nn.Linear(4, 2)
            def forward(self, data):
                return self.sub(F.linear(data, self.weight))
        model, arc, scale = DDP(nn.Linear(4, 4)), Arc(), nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([*model.parameters(), *arc.parameters(), scale], lr=0.1)
        (arc(model(torch.randn(3, 4))) * scale).mean().backward()
        optimizer.step()
        model.module.extra = nn.Linear(2, 2)
        model(torch.randn(3, 4)).mean().backward()
        """,
    )
    outside = ("Arc.weight", "Arc.sub.weight", "Arc.sub.bias", "group 0 parameter 5")
    assert seen.optimizers[0].keys == ("weight", "bias", *outside)
    assert seen.optimizers[0].outside == outside
    assert seen.steps[0].forwards[0].unknown == ()
    assert seen.trailing.forwards[0].unknown == ("extra.weight", "extra.bias")


def test_join_hooks_and_sharded_optimizers(tmp_path):
    seen = record(
        tmp_path,
        """
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        from torch.distributed.optim import ZeroRedundancyOptimizer
        def halve(state, bucket):
            work = dist.all_reduce(bucket.buffer().div_(2), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])
        for hook in (halve, default_hooks.allreduce_hook):
            model = DDP(nn.Linear(4, 4))
            model.register_comm_hook(None, hook)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with model.join():
                for step in range(1 + rank):
                    model(torch.randn(3, 4)).mean().backward()
                    optimizer.step()
        sharded = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        model(torch.randn(3, 4)).mean().backward()
        sharded.step()
        sharded.param_groups.clear()
        """,
    )
    assert [one.hook for one in seen.wrappers] == ["halve", "allreduce_hook"]
    assert reduced(seen) == [[(0,)], [(1,)], [(1,)]]
    assert [step.joined for step in seen.steps] == [True, True, False]
    assert [(one.name, one.sharded) for one in seen.optimizers][2:] == [
        ("ZeroRedundancyOptimizer", True),
        ("SGD", True),
    ]
    assert seen.collectives == ()


def test_what_was_to_be_wrapped_is_seen_where_the_constructor_raises(tmp_path):
    seen = record(
        tmp_path,
        """
        frozen = nn.Linear(4, 4).requires_grad_(False)
        with contextlib.suppress(RuntimeError):
            DDP(frozen)
        DDP(nn.Linear(4, 5))
        """,
    )
    refused, right = seen.wrappers
    assert (right.index, right.failed, right.parameters[0].shape) == (0, None, (5, 4))
    assert "is not needed" in refused.failed


def test_only_the_group_of_a_wrapper_counts_for_it(tmp_path):
    body = """
        groups = [dist.new_group([0, 1]), dist.new_group([2])]
        model = DDP(nn.Linear(4, 4), process_group=groups[rank // 2])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(3, 4)).mean().backward()
        optimizer.step()
        """
    recordings = run(tmp_path, body, nproc=3).trace.recordings()
    assert [one.wrappers[0].ranks for one in recordings.values()] == [(0, 1), (0, 1), (2,)]
    assert all(reduced(one) == [[(0,)]] for one in recordings.values())


def test_torch_compile_makes_the_same_graphs(tmp_path):
    script = write(
        tmp_path,
        """
        from torch._dynamo.utils import counters
        def train(build):
            torch.manual_seed(0)
            torch._dynamo.reset()
            counters.clear()
            model = build()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(40):
                loss = F.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 2))
                loss.backward()
                optimizer.step()
            print(float(loss), dict(counters["stats"]), flush=True)
        def net():
            return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        train(lambda: DDP(torch.compile(net(), backend="eager", fullgraph=True)))
        train(lambda: torch.compile(DDP(net()), backend="eager"))
        """,
    )
    recorded = run_forked(script, tmp_path / "recorded", full=True)
    alone = run_forked(script, tmp_path / "alone", record=False)
    assert recorded.outputs == alone.outputs
    assert recorded.finals == alone.finals


def test_teachers_are_looked_at_in_detailed_steps(tmp_path):
    seen = record(
        tmp_path,
        """
        model = DDP(nn.Linear(4, 2))
        frozen, trained = nn.Linear(4, 2).requires_grad_(False), nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(400):
            data = torch.randn(3, 4)
            (model(data) - frozen(data) - trained(data)).square().sum().backward()
            optimizer.step()
        """,
    )
    detailed = [step for step in seen.steps if step.forwards]
    assert len(seen.events(CopyForward)) == len(detailed) < 400
