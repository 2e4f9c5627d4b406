from ddpdoctor.check import Check, Judgement, Passed
from ddpdoctor.text import by_state, duration, plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.stragglers import paced_steps, typical

LEAST_SHARE = 0.5
"""Of a training step."""
LEAST_SECONDS = 0.02
"""Shorter waits are of steps that are short altogether."""


class InputBound(Check):
    """Training waits for its data.

    What it finds:
        Training steps of which every rank spends at least half waiting for the DataLoader, after its workers have
        started.

    Why it matters:
        The GPUs are idle meanwhile. More ranks make it worse where they share the disk or the CPUs.

    Example:
        DataLoader(dataset, batch_size=64)          # num_workers=0: each batch is loaded while the GPU waits

    Fix:
        Load in the background, as far as CPUs are there: CPUs of the host divided by its ranks.
            DataLoader(dataset, batch_size=64, num_workers=8, pin_memory=True, persistent_workers=True)
    """

    code = "DD604"
    title = "training does not wait for its data"
    timed = True
    explained_by = ("DD601",)

    def examine_run(self, trace: Trace) -> Judgement:
        steps = paced_steps(trace)
        recordings = trace.training()
        self.require(any(it.training_passes for it in recordings.values()), "no DataLoader was used to train")
        waits = {rank: typical(step, "data") for rank, step in steps.items()}
        shares = {rank: waits[rank] / typical(step, "total") for rank, step in steps.items()}
        least = min(shares, key=lambda rank: shares[rank])
        if shares[least] < LEAST_SHARE or waits[least] < LEAST_SECONDS:
            most = max(shares.values())
            return Passed(f"at most {most:.0%} of a training step is spent waiting for data")
        first = next(recording for recording in recordings.values() if recording.training_passes)
        trained = first.training_passes[0]
        loader = first.loader(trained.loader)
        return self.warn(
            f"{ranks_phrase(waits)} wait for data in {min(shares.values()):.0%} or more of each training step",
            why=f"The loader has {plural(loader.workers if loader else 0, 'worker')} on each rank, and a batch takes "
            "longer to load than to train on.",
            where=trained.at,
            evidence=by_state(
                steps, lambda it: f"waits {duration(typical(it, 'data'))} of {duration(typical(it, 'total'))}"
            ),
        )
