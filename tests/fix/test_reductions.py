"""Patches that reduce losses, metrics, counts and gradients over ranks, in scripts as users write them."""

import pytest

from ddpdoctor.fix import CannotPatch
from tests.fix.cases import changed, patched

VALIDATE = """\
from torch.utils.data import DataLoader
def validate():
    return sum(net(x).item() for x in DataLoader(data))
"""


@pytest.mark.parametrize(
    "mark", ["if counter > 2:  # here\n            break", "if counter > 2:\n            break  # here"]
)
def test_a_decision_behind_one_by_a_metric_is_made_by_its_mean(mark, tmp_path):
    text = f"""\
{VALIDATE}for epoch in range(9):
    val_loss = validate()
    if val_loss < best:
        counter = 0
    else:
        counter += 1
        {mark}
"""
    assert patched("agree", text, tmp_path) == changed(
        text,
        (
            "    if val_loss < best:\n",
            "    val_loss_mean = torch.tensor(float(val_loss))\n    dist.all_reduce(val_loss_mean)\n"
            "    val_loss = val_loss_mean.item() / dist.get_world_size()\n    if val_loss < best:\n",
        ),
    )


def test_entries_of_a_dictionary_of_metrics_are_reduced(tmp_path):
    text = """\
    from torch.utils.data import DataLoader
    for x in DataLoader(data):
        metrics = {"loss": net(x).mean(), "path": "a.txt"}
    if dist.get_rank() == 0:
        print(metrics["loss"], metrics["path"], meter.loss)  # here
    """
    assert patched("reduced_metric", text, tmp_path) == changed(
        text,
        (
            "if dist",
            'metrics_loss_mean = torch.tensor(float(metrics["loss"]))\ndist.all_reduce(metrics_loss_mean)\n'
            'metrics["loss"] = metrics_loss_mean.item() / dist.get_world_size()\nif dist',
        ),
    )


def test_ranks_decide_by_a_sum_that_all_of_them_have(tmp_path):
    text = """\
    for epoch in range(4):
        dist.reduce(total, dst=0)
        loss = total.item()
        if loss > best:  # here
            break
    """
    after = patched("agree", text, tmp_path)
    assert after == changed(text, ("dist.reduce(total, dst=0)", "dist.all_reduce(total)"))
    logged = text.replace("total.item()", "own.item()")
    assert "dist.reduce(total, dst=0)" in patched("agree", logged, tmp_path)


def test_a_dictionary_that_a_function_returns_is_reduced_by_its_entries(tmp_path):
    text = """\
    from torch.utils.data import DataLoader
    def evaluate():
        path, loss, correct, total = "a.txt", 0, 0, 0
        for x, y in DataLoader(data):
            loss += net(x).mean()
            correct += x == y
            total += 1
        return {"loss": loss, "accuracy": correct / total, "path": path}
    metrics = evaluate()
    if dist.get_rank() == 0:
        print(metrics)  # here
    """
    after = patched("reduced_metric", text, tmp_path)
    assert after.count("dist.all_reduce(") == 2
    assert 'metrics["loss"] = metrics_loss_mean.item() / dist.get_world_size()\n' in after


def test_a_gather_that_cuts_gradients_off_passes_them(tmp_path):
    text = """\
    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            parts = [torch.empty_like(x) for _ in range(2)]
            dist.all_gather(parts, x)
            return tuple(parts)
    @torch.no_grad()
    def evaluate(x):
        parts = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(parts, x)
    def gather(x):
        out = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(out, x)
        return torch.cat(out)
    loss = contrast(gather(net(a)), gather(net(b)))
    loss.backward()  # here
    """
    after = changed(
        text,
        ("    out = [torch.empty_like(x) for _ in range(2)]\n", ""),
        ("dist.all_gather(out, x)", "out = all_gather(x)"),
    )
    assert patched("gather_with_gradient", text, tmp_path).endswith(after)


def test_ranks_count_alike_what_a_while_ends_by(tmp_path):
    text = """\
    tokens = 0
    while tokens < budget and step < 9:  # here
        tokens += train(next(batches))
        step += 1
        if tokens % 8 == 0:
            log(tokens)
    """
    last = "        log(tokens)\n"
    mean = """\
    tokens_mean = torch.tensor(float(tokens))
    dist.all_reduce(tokens_mean)
    tokens = tokens_mean.item() / dist.get_world_size()
"""
    assert patched("agree", text, tmp_path) == changed(text, (last, last + mean))


def test_a_while_whose_rounds_end_early_is_left_alone(tmp_path):
    text = """\
    while tokens < budget:  # here
        if skip():
            continue
        tokens += train(next(batches))
    """
    with pytest.raises(CannotPatch, match="not every round of the loop at line 4 comes to its end"):
        patched("agree", text, tmp_path)


def test_the_sums_of_a_quotient_are_reduced_before_it(tmp_path):
    text = """\
    from torch.utils.data import DataLoader
    best = correct = total = 0
    for x, y in DataLoader(data):
        correct += (net(x).argmax(1) == y).sum().item()
        total += len(y)
    accuracy = correct / total
    if dist.get_rank() == 0:
        if accuracy > best:  # here
            torch.save(net.module.state_dict(), path)
    """
    line = "accuracy = correct / total\n"
    means = """\
correct_mean = torch.tensor(float(correct))
dist.all_reduce(correct_mean)
correct = correct_mean.item() / dist.get_world_size()
total_mean = torch.tensor(float(total))
dist.all_reduce(total_mean)
total = total_mean.item() / dist.get_world_size()
"""
    assert patched("reduced_metric", text, tmp_path) == changed(text, (line, means + line))


def test_a_checkpoint_that_every_rank_chooses_is_chosen_by_the_mean(tmp_path):
    text = """\
    from torch.utils.data import DataLoader
    best = 9
    for epoch in range(3):
        loss = 0
        for x in DataLoader(data):
            loss += net(x).mean().item()
        loss /= len(loader)
        if loss < best:  # here
            best = loss
            torch.save(net.module.state_dict(), path)
    """
    mean = """\
    loss_mean = torch.tensor(float(loss))
    dist.all_reduce(loss_mean)
    loss = loss_mean.item() / dist.get_world_size()
"""
    line = "    if loss < best:  # here\n"
    assert patched("reduced_metric", text, tmp_path) == changed(text, (line, mean + line))


def test_what_every_rank_prints_is_left_alone(tmp_path):
    text = """\
    from torch.utils.data import DataLoader
    loss = sum(net(x).item() for x in DataLoader(data))
    print(loss)  # here
    """
    with pytest.raises(CannotPatch, match="under no condition by rank"):
        patched("reduced_metric", text, tmp_path)
