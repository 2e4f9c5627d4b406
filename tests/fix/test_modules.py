"""Patches by what a run recorded: loops, loaders and wraps may stand in several files of the user's."""

import textwrap

from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.patches import patches
from ddpdoctor.model import Finding, Kind, Level, Where
from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.trace.data import Pass
from tests.support.recordings import recording, replace, trace


def at(text, mark):
    """The line that ends in a mark."""
    return next(number for number, line in enumerate(text.split("\n"), 1) if line.endswith(mark))


def patched(name, files, folder, made, loop):
    """The files after a patch for a DataLoader; ``made`` and ``loop`` name the lines that end in these comments."""
    texts = {file: textwrap.dedent(text) for file, text in files.items()}
    for file, text in texts.items():
        (folder / file).write_text(text)
    places = {
        mark: Where(file, at(text, mark))
        for mark in (made, loop)
        for file, text in texts.items()
        if mark in text
    }
    loader = Loader(0, places[made], "TensorDataset", 16, batch_size=4)
    pass_ = Pass(0, 0, places[loop], 0.1, 1.9, None, tuple(range(16)), 4, 4, "exhausted", training=True)
    own = replace(recording(0), loaders=(loader,), passes=(pass_,), wrappers=())
    about = Kind.LOADER.of(f"{places[made].file}:{places[made].line}")
    finding = Finding("DD999", Level.FAIL, "", "", "", where=places[made], about=about)
    project = Project(folder)
    patches()[name].apply(Case(finding, trace({0: own}), project))
    return {path.name: raw.decode() for path, raw in project.after(project.take()).items()}


DATA = """\
    from torch.utils.data import DataLoader

    def make_loader(dataset, size):
        return DataLoader(
            dataset,
            batch_size=size,
            shuffle=True,
        )  # made
    """


def test_a_loader_in_one_file_and_its_loops_in_another(tmp_path):
    files = {
        "data.py": DATA,
        "train.py": """\
            from data import make_loader

            class Trainer:
                def __init__(self, dataset):
                    self.loader = make_loader(dataset, 4)

                def run_epoch(self):
                    for x in self.loader:  # loop
                        self.step(x)

                def fit(self):
                    for number in range(3):
                        self.run_epoch()
            """,
    }
    after = patched("distributed_sampler", files, tmp_path, "# made", "# loop")
    assert after["data.py"] == textwrap.dedent(
        """\
        from torch.utils.data import DataLoader, DistributedSampler

        def make_loader(dataset, size):
            sampler = DistributedSampler(dataset)
            return DataLoader(
                dataset,
                batch_size=size,
                sampler=sampler,
            )  # made
        """
    )
    assert (
        "        for number in range(3):\n            self.loader.sampler.set_epoch(number)\n"
        in after["train.py"]
    )


GUARDED = """\
    import torch.distributed as dist

    def main(args):
        if args.distributed:
            dist.init_process_group("nccl")  # here
        train()
        return 0

    main(parse())
    """


def test_a_group_that_depends_on_an_option_is_destroyed_where_it_is_there(tmp_path):
    text = textwrap.dedent(GUARDED)
    (tmp_path / "train.py").write_text(text)
    project = Project(tmp_path)
    finding = Finding("DD999", Level.INFO, "", "", "", where=Where("train.py", at(text, "# here")))
    patches()["destroy_process_group"].apply(Case(finding, trace({}), project))
    ((_, raw),) = project.after(project.take()).items()
    end = "    if dist.is_initialized():\n        dist.destroy_process_group()\n    return 0\n"
    assert raw.decode() == text.replace("    return 0\n", end)
