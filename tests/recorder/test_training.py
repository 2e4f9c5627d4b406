"""What the recorder sees of training, in real ranks: each event, its line, and that nothing is changed by it."""

import textwrap
from pathlib import Path

import pytest

from ddpdoctor.recorder.training import Ration, is_detailed, is_digested
from ddpdoctor.trace.recording import Recording
from tests.support.forked import Ran, run_forked

HEAD = """
import contextlib, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
"""


def write(folder: Path, body: str) -> Path:
    script = folder / "train.py"
    script.write_text(f"{HEAD}{textwrap.dedent(body)}\ndist.destroy_process_group()\n")
    return script


def run(folder: Path, body: str, nproc: int = 2, **options) -> Ran:
    ran = run_forked(write(folder, body), folder / "ran", nproc=nproc, full=True, **options)
    assert not any(ran.statuses), ran.errors
    return ran


def record(folder: Path, body: str, rank: int = 0, nproc: int = 2) -> Recording:
    recording = run(folder, body, nproc).trace.recordings()[rank]
    assert recording.notes == ()
    return recording


def line_of(folder: Path, text: str) -> int:
    lines = (folder / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def reduced(recording: Recording) -> list[list[tuple[int, ...]]]:
    return [[one.reduced for one in step.backwards] for step in recording.steps]


STEP = """
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 3)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(3):
    inputs, targets = torch.randn(5, 4), torch.tensor([0, 1, 2, -100, 1])
    loss = F.cross_entropy(model(inputs), targets) / 2
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    model(inputs)
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
"""


def test_a_right_step(tmp_path):
    seen = record(tmp_path, STEP)
    (wrapper,), step = seen.wrappers, seen.steps[0]
    assert [one.key for one in wrapper.parameters][:2] == ["0.weight", "0.bias"]
    assert wrapper.modules == {"BatchNorm": 1, "Dropout": 1}
    assert wrapper.flags["broadcast_buffers"] is True
    (forward,), (backward,), (loss,), (clip,) = step.forwards, step.backwards, step.losses, step.clips
    assert (forward.batch, forward.grad, forward.synced, forward.around) == (5, True, True, False)
    assert forward.batch_norms == 1
    assert forward.at.line == line_of(tmp_path, "model(inputs), targets")
    assert (backward.reduced, backward.collectives, backward.factor) == ((0,), 1, 0.5)
    assert backward.at.line == line_of(tmp_path, "loss.backward()")
    assert (loss.function, loss.count, loss.elements, loss.ignored) == ("cross_entropy", 4, 5, -100)
    assert (clip.limit, clip.keys, clip.stage, clip.backwards) == (0.5, 6, None, 1)
    (update,) = step.optimizer_steps
    assert update.at.line == line_of(tmp_path, "optimizer.step()")
    assert update.hyperparameters[0]["lr"] == 0.01
    assert update.after == seen.steps[1].optimizer_steps[0].before != update.before
    assert set(step.phases) >= {"forward", "backward", "step"}
    assert seen.step_count == 3
    assert [one.when for one in seen.buffers] == ["evaluation", "save", "end"]
    assert seen.trailing.forwards[0].grad is False


def test_ranks_agree_where_they_should(tmp_path):
    first, second = run(tmp_path, STEP).trace.recordings().values()
    for one, other in zip(first.steps, second.steps, strict=True):
        assert one.optimizer_steps[0].gradients == other.optimizer_steps[0].gradients
        assert one.optimizer_steps[0].after == other.optimizer_steps[0].after
        assert one.forwards[0].input != other.forwards[0].input
        assert one.forwards[0].random != other.forwards[0].random
    assert first.wrappers[0].digests == second.wrappers[0].digests


def test_nothing_is_different_for_the_script(tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    script = write(plain, STEP + "print(sum(p.sum().item() for p in model.parameters()), torch.rand(2))\n")
    recorded = run_forked(script, tmp_path / "recorded", full=True)
    alone = run_forked(script, tmp_path / "alone", record=False)
    assert recorded.outputs == alone.outputs
    assert recorded.finals == alone.finals
    assert recorded.finals[0]


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
    assert [(one.wrapper, one.number) for one in seen.shadows] == [(0, 0)]
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


def test_a_gradient_scaler(tmp_path):
    seen = record(
        tmp_path,
        """
        model = DDP(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(3):
            scaler.scale(F.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 4)) / 4).backward()
            if step == 1:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if step == 2:
                model.module.weight.grad.fill_(float("inf"))
            scaler.step(optimizer)
            scaler.update()
        """,
    )
    assert [(one.stage, one.scale) for step in seen.steps for one in step.clips] == [
        ("READY", 1024.0),
        ("UNSCALED", 1024.0),
        ("READY", 1024.0),
    ]
    assert [one.skipped for step in seen.steps for one in step.optimizer_steps] == [False, False, True]
    assert [one.factor for step in seen.steps for one in step.backwards] == [0.25, 0.25, 0.25]


def test_a_framework_that_steps_a_scheduler_is_named(tmp_path):
    seen = record(
        tmp_path,
        """
        framework = {"__name__": "accelerate.scheduler"}
        exec("def step(scheduler): scheduler.step()", framework)
        model = DDP(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rates = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        model(torch.randn(3, 4)).mean().backward()
        optimizer.step()
        framework["step"](rates)
        rates.step()
        """,
    )
    assert [one.by for one in seen.steps[0].schedulers] == ["accelerate", None]


@pytest.mark.parametrize("group", ["", "None", "group=None", "dist.group.WORLD"])
def test_the_end_of_the_default_group_by_any_name(group, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"{HEAD}dist.barrier()\ndist.destroy_process_group({group})\n")
    ran = run_forked(script, tmp_path / "ran", nproc=2)
    assert [one.groups[-1].action for one in ran.trace.recordings().values()] == ["destroy", "destroy"]


def test_schedulers_count_once_and_not_when_they_are_made(tmp_path):
    seen = record(
        tmp_path,
        """
        model = DDP(nn.Linear(4, 4))
        optimizer, rates = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.lr_scheduler
        class Mine(rates.LambdaLR):
            def step(self, *given):
                super().step(*given)
        schedulers = [
            rates.SequentialLR(optimizer, [rates.LinearLR(optimizer), rates.StepLR(optimizer, 5)], [2]),
            rates.CosineAnnealingWarmRestarts(optimizer, 3),
            Mine(optimizer, lambda step: 1.0),
        ]
        plateau = rates.ReduceLROnPlateau(optimizer)
        for step in range(2):
            model(torch.randn(3, 4)).mean().backward()
            optimizer.step()
            for one in schedulers:
                one.step()
            plateau.step(torch.tensor(0.5))
        """,
    )
    names = ["SequentialLR", "CosineAnnealingWarmRestarts", "Mine", "ReduceLROnPlateau"]
    assert [[one.name for one in step.schedulers] for step in seen.steps] == [names, names]
    assert [one.metric for one in seen.steps[0].schedulers] == [None, None, None, 0.5]


def test_collectives_of_the_script(tmp_path):
    seen = record(
        tmp_path,
        """
        import torch.distributed.nn
        from torch.distributed import all_reduce
        model = DDP(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        pair = dist.new_group([0, 1])
        features = model(torch.randn(3, 4))
        parts = [torch.empty_like(features) for _ in range(2)]
        dist.all_gather(parts, features)
        parts[rank] = features
        torch.cat(parts).pow(2).mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        torch.distributed.nn.all_reduce(model(torch.randn(3, 4)).mean()).backward()
        dist.broadcast(model.module.weight.data, src=1, group=pair)
        all_reduce(torch.ones(2, dtype=torch.int64), dist.ReduceOp.MAX, async_op=True).wait()
        dist.barrier()
        """,
    )
    gather, weight, bias, differentiable, broadcast, most, barrier = seen.collectives
    assert (gather.operation, gather.shape, gather.requires_grad) == ("all_gather", (3, 4), True)
    assert gather.at.line == line_of(tmp_path, "dist.all_gather(")
    assert (weight.gradient_of, bias.gradient_of, weight.reduce) == ("weight", "bias", "sum")
    assert seen.steps[0].optimizer_steps[0].norms == pytest.approx(
        {"weight": 2 * weight.norm, "bias": 2 * bias.norm}
    )
    assert (differentiable.differentiable, differentiable.requires_grad) == (True, True)
    assert (broadcast.group, broadcast.peer, broadcast.weight_of) == ((0, 1), 1, "weight")
    assert (most.reduce, most.dtype) == ("max", "int64")
    assert (barrier.operation, barrier.shape) == ("barrier", None)
    assert seen.steps[0].backwards[0].gathered is True
    assert [one.reduced for one in seen.trailing.backwards] == [(0,)]


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


def test_a_closure_is_judged_by_the_gradients_it_left(tmp_path):
    seen = record(
        tmp_path,
        """
        model = DDP(nn.Linear(4, 4))
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(3, 4)).pow(2).mean()
            loss.backward()
            return loss
        optimizer.step(closure)
        """,
    )
    (step,) = seen.steps
    assert len(step.backwards) > 1
    assert all(step.optimizer_steps[0].gradients.values())
    assert step.optimizer_steps[0].closure


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
    right, refused = seen.wrappers
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


def test_a_long_run_is_thinned_out(tmp_path):
    seen = record(
        tmp_path,
        """
        model = DDP(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rates = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        for step in range(300):
            model(torch.randn(3, 4)).mean().backward()
            dist.all_reduce(torch.ones(1))
            optimizer.step()
            rates.step()
        """,
    )
    indices = [step.index for step in seen.steps]
    assert seen.step_count == 300
    assert indices == [index for index in range(300) if is_detailed(index)]
    assert all(len(step.forwards) == len(step.backwards) == 1 for step in seen.steps)
    assert all(len(step.schedulers) <= 1 for step in seen.steps)
    assert seen.progress["collectives"] == 300
    assert len(seen.collectives) < 200
    assert seen.collectives[-1].number is not None


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
            for step in range(2):
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


def test_the_details_of_a_long_run_are_few_and_the_same_on_every_rank():
    assert [step for step in range(40) if is_detailed(step)] == [*range(32), 32, 36]
    assert sum(is_detailed(step) for step in range(100_000)) < 150
    assert all(is_detailed(step) for step in range(100_000) if is_digested(step))


def test_a_large_model_has_digests_at_fewer_steps():
    def taken(size: int, **options) -> int:
        ration = Ration(**options)
        return sum(ration.take(step, size) for step in range(1000))

    small, large = taken(10_000, full=True, device="cpu"), taken(50_000_000, full=True, device="cpu")
    assert small == sum(is_digested(step) for step in range(1000))
    assert 2 <= large < 10
    assert taken(50_000_000, full=True, device="cuda") > large
    assert taken(50_000_000, full=False, device="cpu") > large
