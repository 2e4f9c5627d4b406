"""Layers that a model chooses by its inputs, read in the script's files."""

import textwrap

import pytest

from ddpdoctor.trace.source_causes import chosen_part

CHOSEN = {
    "experts by token": """
        for number in range(self.count):
            tokens = (chosen == number).nonzero()
            if tokens.numel() > 0:
                y[tokens] = self.experts[number + self.shared](x[tokens])  # chosen
    """,
    "experts that have tokens": """
        for number in chosen.unique():
            y = y + self.experts[number](x)  # chosen
    """,
    "layers left out at random": """
        for layer in self.layers:
            if not self.training or random.random() > self.rate:
                x = layer(x)  # chosen
    """,
}
ALL_USED = {
    "layers in order": """
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number % 2 == 0 and len(self.norms):
                x = self.norms[number](x)
    """,
    "layers by name": """
        for name, layer in self.layers.items():
            x = layer(x)
    """,
    "a setting": """
        for layer in self.layers:
            if self.residual is not None:
                x = x + layer(x)
        if x.numel() > 0:
            x = self.head(x)
    """,
}


IMPORTS = "import model, torch; from torch import nn; from transformers import BertPreTrainedModel\n"


@pytest.fixture
def line_of(tmp_path):
    def read(forward, head="class Net(nn.Module):\n    def forward(self, x):"):
        script = tmp_path / "train.py"
        body = textwrap.indent(textwrap.dedent(forward), "        ")
        script.write_text(f"{IMPORTS}{head}{body}        return x\n")
        part = chosen_part(str(script))
        return part and script.read_text().splitlines()[part.line - 1]

    return read


@pytest.mark.parametrize("forward", CHOSEN.values(), ids=CHOSEN)
def test_a_layer_that_inputs_choose(line_of, forward):
    assert line_of(forward).endswith("# chosen")


@pytest.mark.parametrize("forward", ALL_USED.values(), ids=ALL_USED)
def test_layers_that_are_all_used(line_of, forward):
    assert line_of(forward) is None


@pytest.mark.parametrize(
    "head",
    [
        "class Base(torch.nn.Module): ...\nclass Net(Base):\n    def forward_features(self, x):",
        "class Net(BertPreTrainedModel):\n    def forward(self, x):\n        return self.experts_of(x)\n"
        "    def experts_of(self, x):",
    ],
    ids=["a class of the script above it", "a method that forward calls"],
)
def test_what_is_part_of_a_models_forward(line_of, head):
    assert line_of(CHOSEN["layers left out at random"], head).endswith("# chosen")


@pytest.mark.parametrize(
    "head",
    [
        "class Compose:\n    def __call__(self, x):",
        "class BaseModule: ...\nclass Net(BaseModule):\n    def forward(self, x):",
        "class Net(Net):\n    def forward(self, x):",
        "class Net(nn.Module):\n    def prune(self, x):",
    ],
    ids=["transforms", "a base with the name of one", "a base that is not known", "another method"],
)
def test_what_is_no_part_of_a_models_forward(line_of, head):
    assert line_of(CHOSEN["layers left out at random"], head) is None
