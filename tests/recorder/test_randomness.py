"""What training steps and datasets draw from the global random streams."""

import pytest

from tests.recorder.scripts import recorded

SCRIPT = """
class Noisy(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return torch.tensor([float(index)]) + random.random()
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)
    def forward(self, batch):
        return self.linear(batch + torch.rand(3, 1))
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Noisy(), batch_size=3, shuffle=True):
    model(batch + torch.randn(3, 1)).sum().backward()
    torch.rand(1)
    optimizer.step()
"""


@pytest.mark.slow
def test_what_is_drawn_and_where(tmp_path):
    recording = recorded(tmp_path, SCRIPT)
    (pass_,) = recording.passes
    assert [set(drew) for drew in pass_.draws] == [{"python"}] * 4
    # random.random takes two numbers of 32 bits; the first makes new ones.
    assert [drew["python"].numbers for drew in pass_.draws] == [624, 6, 6, 6]
    first, second, *_ = (
        [(one.inside, one.streams["torch"].numbers) for one in s.draws] for s in recording.steps
    )
    # The sampler has drawn its seed, and is no part of a step.
    assert [inside for inside, _ in first] == [False, True, False]
    assert second[1:] == [(True, 3), (False, 1)]
