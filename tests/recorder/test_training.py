"""What the recorder sees of training, in real ranks: each event, its line, and that nothing is changed by it."""

import json
from types import SimpleNamespace

import pytest

from ddpdoctor.recorder.events.training import Buffers, Progress
from ddpdoctor.recorder.sampling import CHECKED, WATCHED
from ddpdoctor.recorder.training import DigestBudget
from tests.recorder.trained import HEAD, line_of, record, run, write
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow

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
    assert wrapper.flags["broadcast_buffers"] is True
    (forward,), (backward,), (loss,), (clip,) = step.forwards, step.backwards, step.losses, step.clips
    assert (forward.batch, forward.grad, forward.synced, forward.around) == (5, True, True, False)
    assert forward.batch_norms == 1
    assert forward.at.line == line_of(tmp_path, "model(inputs), targets")
    assert (backward.reduced, backward.collectives, backward.factor) == ((0,), 1, 0.5)
    assert backward.at.line == line_of(tmp_path, "loss.backward()")
    assert 0.1 < backward.value < 2.0
    assert (loss.function, loss.count, loss.ignored) == ("cross_entropy", 4, -100)
    assert (clip.limit, clip.keys, clip.stage, clip.backwards) == (0.5, 6, None, 1)
    (update,) = step.optimizer_steps
    assert update.at.line == line_of(tmp_path, "optimizer.step()")
    assert update.hyperparameters[0]["lr"] == 0.01
    assert update.after == seen.steps[1].optimizer_steps[0].before != update.before
    assert set(step.phases) >= {"forward", "backward", "step"}
    assert seen.step_count == 3
    assert [one.when for one in seen.events(Buffers)] == ["evaluation", "save", "end"]
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
    assert [one.before is None for step in seen.steps for one in step.optimizer_steps] == [False, False, True]
    assert [one.factor for step in seen.steps for one in step.backwards] == [0.25, 0.25, 0.25]
    assert all(one.value < 10 for step in seen.steps for one in step.backwards)


def test_one_clipping_of_scaled_gradients_is_told_once(tmp_path):
    seen = record(
        tmp_path,
        """
        model = DDP(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(6):
            optimizer.zero_grad()
            scaler.scale(F.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 4))).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        """,
    )
    assert [[one.limit for one in step.clips] for step in seen.steps] == [[1.0]] * 6


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
    last = [one.groups[-1] for one in ran.trace.recordings().values()]
    assert [(event.action, event.returned) for event in last] == [("destroy", True)] * 2


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
        dist.all_reduce(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
        all_reduce(torch.ones(2, dtype=torch.int64), dist.ReduceOp.MAX, async_op=True).wait()
        dist.barrier()
        """,
    )
    gather, weight, bias, differentiable, broadcast, flat, most, barrier = seen.collectives
    assert (gather.operation, gather.shape, gather.requires_grad) == ("all_gather", (3, 4), True)
    assert gather.at.line == line_of(tmp_path, "dist.all_gather(")
    assert (weight.gradient_of, bias.gradient_of, weight.reduce) == ("weight", "bias", "sum")
    assert seen.steps[0].optimizer_steps[0].norms == pytest.approx(
        {"weight": 2 * weight.norm, "bias": 2 * bias.norm}
    )
    assert (differentiable.differentiable, differentiable.requires_grad) == (True, True)
    assert (broadcast.group, broadcast.peer, broadcast.weight_of) == ((0, 1), 1, "weight")
    assert (flat.shape, flat.weight_of) == ((20,), "weight")
    assert (most.reduce, most.dtype) == ("max", "int64")
    assert (barrier.operation, barrier.shape) == ("barrier", None)
    assert seen.steps[0].backwards[0].gathered is True
    assert [one.reduced for one in seen.trailing.backwards] == [(0,)]


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


def test_a_long_run_is_thinned_out(tmp_path):
    seen = record(
        tmp_path,
        """
        import time
        model = DDP(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rates = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        for step in range(300):
            model(torch.randn(3, 4)).mean().backward()
            dist.all_reduce(torch.ones(1))
            optimizer.step()
            rates.step()
            if step == 200:
                time.sleep(1.1)
        """,
    )
    indices = [step.index for step in seen.steps]
    assert seen.step_count == 300
    assert indices == [index for index in range(300) if CHECKED.is_detailed(index)]
    assert all(len(step.forwards) == len(step.backwards) == 1 for step in seen.steps)
    assert all(len(step.schedulers) <= 1 for step in seen.steps)
    last = seen.events(Progress)[-1]
    assert last.collectives == 300
    assert last.memory > 0
    assert last.loss is not None
    assert len(seen.collectives) < 200
    assert seen.collectives[-1].number is not None


def test_the_details_of_a_long_run_are_few_and_the_same_on_every_rank():
    for sampling, most in ((CHECKED, 150), (WATCHED, 75)):
        assert sum(sampling.is_detailed(step) for step in range(100_000)) < most
        assert all(sampling.is_detailed(step) for step in range(100_000) if sampling.is_digested(step))
        detailed = [step for step in range(10_000) if sampling.is_detailed(step)]
        assert [sampling.next_detailed(before + 1) for before in detailed[:-1]] == detailed[1:]
        for step in range(1000):
            assert sampling.next_detailed(step) == next(n for n in detailed if n >= step)
    assert [step for step in range(40) if CHECKED.is_detailed(step)] == [*range(32), 32, 36]
    late = [64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280]
    assert [step for step in range(1500) if WATCHED.is_detailed(step)] == [*range(16), *late]
    digested = [step for step in range(1000) if CHECKED.is_digested(step)]
    assert len(digested) == 16 + 6 * 4  # the first 16, then four in each doubling
    assert digested[-5:] == [448, 512, 640, 768, 896]
    rare = [step for step in range(16, 1000) if WATCHED.is_digested(step)]
    assert rare == [64, 128, 256, 512]


def test_a_large_model_has_digests_at_fewer_steps():
    def taken(size: int, tensors: int = 1, **options) -> int:
        ration = DigestBudget(**options)
        model = [SimpleNamespace(numel=lambda: size, element_size=lambda: 1)] * tensors
        return sum(ration.take(step, model, 1) for step in range(1000) if CHECKED.is_digested(step))

    small, large = taken(10_000, full=True, device="cpu"), taken(50_000_000, full=True, device="cpu")
    assert small == sum(CHECKED.is_digested(step) for step in range(1000))
    assert 2 <= large < 10
    assert taken(50_000_000, full=True, device="cuda") > large
    assert taken(50_000_000, full=False, device="cpu") > large
    assert taken(10, 3000, full=True, device="cpu") < small  # to come to a tensor takes time, too


def test_a_step_that_is_counted_only_hides_nothing_of_what_is_told(tmp_path):
    body = """
        model, critic = DDP(nn.Linear(4, 1)), DDP(nn.Linear(4, 1))
        optimizers = [torch.optim.SGD(one.parameters(), lr=1e-3) for one in (model, critic)]
        for step in range(60):
            for part in range(2):
                with model.no_sync() if part == 0 else contextlib.nullcontext():
                    F.mse_loss(model(torch.randn(2, 4)), torch.zeros(2, 1)).backward()
            F.mse_loss(critic(torch.randn(2, 4)), torch.zeros(2, 1)).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            if step == 50 and rank == 0:
                with torch.no_grad():
                    model.module(torch.randn(2, 4))
                    model(torch.randn(2, 4))
                dist.all_reduce(torch.zeros(1))
            elif step == 50:
                dist.all_reduce(torch.zeros(1))
    """
    recording = record(tmp_path, body)
    assert recording.step_count == 60
    assert recording.events(Progress)[-1].backwards == 180
    whole = [step for step in recording.steps if CHECKED.is_detailed(step.index)]
    assert [step.index for step in whole] == [step for step in range(60) if CHECKED.is_detailed(step)]
    for step in whole:
        assert sum(forward.grad for forward in step.forwards) == 3
        assert [one.reduced for one in step.backwards] == [(), (0,), (1,)]
        assert {"forward", "backward", "step"} <= set(step.phases)
        assert step.index == 0 or step.phases["total"] > step.phases["backward"]
    line = line_of(tmp_path, "model.module(")
    assert [one.at.line for one in recording.evaluation_forwards] == [line]  # the next one follows at once
    assert recording.collectives[-1].operation == "all_reduce"


def test_a_step_that_is_counted_only_costs_the_same_however_many_modules_there_are(tmp_path):
    body = """
        import collections, sys
        steps = []
        def count(frame, event, argument):
            if event == "call" and "/ddpdoctor/recorder/" in frame.f_code.co_filename:
                steps[-1][frame.f_code] += 1
        parts = [part for _ in range(40) for part in (nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.1))]
        model = DDP(nn.Sequential(*parts))
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        for step in range(44):
            steps.append(collections.Counter())
            sys.setprofile(count)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(torch.randn(2, 4)).mean()
            loss.backward()
            model.module[0](torch.randn(2, 4)).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            sys.setprofile(None)
        print([max(calls.values()) for calls in steps])
    """
    ran = run(tmp_path, body, nproc=1)
    most = dict(enumerate(json.loads(ran.outputs[0])))
    assert all((calls > 40) is CHECKED.is_detailed(step) for step, calls in most.items() if step)
    told = ran.trace.recordings()[0].steps
    assert [step.index for step in told] == [step for step in range(44) if CHECKED.is_detailed(step)]
    assert all([forward.around for forward in step.forwards] == [False, True] for step in told)
