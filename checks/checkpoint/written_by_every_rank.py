from collections.abc import Mapping
from itertools import combinations, product

from ddpdoctor.check import Check, Findings, Kind, Passed
from ddpdoctor.frameworks import by_framework
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.text import plural, ranks_phrase, size
from ddpdoctor.trace import Recording, Trace, by_first_line
from ddpdoctor.trace.files import HappensBefore
from ddpdoctor.trace.instances import files as names
from ddpdoctor.unreached.files import checkpoints_written_by_all


class WrittenByEveryRank(Check):
    """Several ranks write the same checkpoint file.

    What it finds:
        A path that more than one rank of a host gives to torch.save, with nothing that makes one wait for the other.
        A different file for each rank, and ranks that take turns, are left alone.

    Why it matters:
        All ranks open, empty and fill one file at once. Mostly the last one wins and the file is whole, as the
        weights are equal; now and then the parts mix, and the checkpoint cannot be read. On a shared filesystem it
        also costs as many writes as there are ranks.

    Example:
        for epoch in range(epochs):
            train(...)
            torch.save(model.module.state_dict(), "last.pt")         # on every rank

    Fix:
        Write on rank 0, and let the others wait where they read it:
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), "last.pt")
            dist.barrier()
    """

    code = "DD402"
    title = "each checkpoint is written by one rank"
    fix_with = by_framework(
        lightning="trainer.save_checkpoint(path)    # on every rank: rank 0 writes; for other files: if "
        "trainer.is_global_zero:",
        fabric="fabric.save(path, state)    # on every rank: rank 0 writes; for other files: if "
        "fabric.is_global_zero:",
        transformers="trainer.save_model(path)    # on every rank: one writes; for other files: if "
        "trainer.is_world_process_zero():",
        accelerate="if accelerator.is_main_process:\n    torch.save(state, path)\n"
        "accelerator.wait_for_everyone()",
        ignite="if idist.get_rank() == 0:\n    torch.save(state, path)\nidist.barrier()",
        ray="if ray.train.get_context().get_world_rank() == 0:\n    torch.save(state, path)\n"
        "ray.train.report(metrics, checkpoint=checkpoint)    # on every rank",
    )
    unreached = (checkpoints_written_by_all, "every rank would write the checkpoint {path}")

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.recordings_of_several()
        paths = {save.path for recording in recordings.values() for save in recording.saves if save.path}
        self.require(paths, "no rank saved anything")
        lines = by_first_line(_writers(recordings), lambda saves: saves[0].at)
        for files in lines:
            # Of the files that ranks save in one line.
            saves = {rank: saves for writers in files.values() for rank, saves in writers.items()}
            # A rank that looks while another one has emptied the file sees a part of it.
            whole = size(max(save.size or 0 for of_rank in saves.values() for save in of_rank))
            yield self.fail(
                f"{ranks_phrase(saves)} write the same file {names(files)}",
                where=next(iter(saves.values()))[0].at,
                evidence={rank: f"saved {plural(len(it), 'time')}, {whole}" for rank, it in saves.items()},
                about=Kind.PATH.of(*files),
            )
        yield Passed(f"{plural(len(paths), 'file')} saved, each by one rank")


def _writers(recordings: Mapping[int, Recording]) -> dict[str, dict[int, list[Save]]]:
    """By path, what each rank saves there that writes it at a time when another rank of its host may."""
    order = HappensBefore(recordings)
    shared: dict[str, set[int]] = {}
    for first, second in combinations(recordings, 2):
        if recordings[first].host == recordings[second].host:
            for save, other in product(recordings[first].saves, recordings[second].saves):
                named = save.path and save.path == other.path and not save.path.startswith("/dev/")
                if named and order.may_overlap(first, save.span, second, other.span):
                    shared.setdefault(save.path, set()).update((first, second))
    return {
        path: {rank: [save for save in recordings[rank].saves if save.path == path] for rank in sorted(ranks)}
        for path, ranks in shared.items()
    }
