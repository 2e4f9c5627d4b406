"""Frameworks that wrap models, for advice in their own words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Framework(str, Enum):
    """A library that makes process groups, wrappers and samplers for the script, with its modules."""

    modules: tuple[str, ...]

    def __new__(cls, name: str, *modules: str) -> Framework:
        """A member whose value is the name."""
        framework = str.__new__(cls, name)
        framework._value_, framework.modules = name, modules
        return framework

    LIGHTNING = "Lightning", "lightning.pytorch", "pytorch_lightning"
    FABRIC = "Fabric", "lightning.fabric", "lightning_fabric"
    TRANSFORMERS = "transformers", "transformers"
    ACCELERATE = "accelerate", "accelerate"
    IGNITE = "Ignite", "ignite"
    RAY = "Ray Train", "ray"


def by_framework(before: str = "", **texts: str) -> Mapping[Framework, str]:
    """Advice by the framework in whose words it is, each with a beginning that all have."""
    return MappingProxyType({Framework[name.upper()]: f"{before}{text}" for name, text in texts.items()})


CALLED_BY_ALL = by_framework(
    "call it on every rank: ",
    lightning="trainer.save_checkpoint, self.log(..., sync_dist=True), "
    "self.all_gather and trainer.validate\nwait for all; only files and prints belong under if "
    "trainer.is_global_zero:",
    fabric="fabric.save, fabric.all_reduce, fabric.barrier wait for all; only "
    "prints and files of your own\nbelong under if fabric.is_global_zero:",
    transformers="trainer.evaluate, predict and save_model wait for all; only "
    "prints and files of your own\nbelong under if trainer.is_world_process_zero():",
    accelerate="accelerator.save_state, gather, reduce and wait_for_everyone "
    "wait for all; only prints\nand torch.save of unwrapped weights belong under if accelerator.is_main_process:",
    ignite="an evaluator with a metric, idist.all_reduce and idist.barrier wait "
    "for all; only prints\nand files belong under if idist.get_rank() == 0:",
    ray="ray.train.report waits for all; only what it is given may differ\n"
    "ray.train.report(metrics, checkpoint=checkpoint)    # checkpoint=None on the other ranks",
)
"""What to do where some ranks alone call what needs all of them."""


def framework_of(module: str) -> Framework | None:
    """The framework that a module belongs to; None for any other module."""
    of_module = (it for it in Framework for name in it.modules if f"{module}.".startswith(f"{name}."))
    return next(of_module, None)
