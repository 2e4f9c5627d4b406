"""What functions, methods and attributes of libraries give, by their qualified names.

Names are those under which a library documents them; :func:`canonical` maps the other paths to the same object.
"""

from enum import Enum
from functools import cache

from ddpdoctor.recorder.operations import OPERATIONS, Kind, kind_of


class Origin(Enum):
    """Where a value comes from, as far as it may differ between ranks."""

    RANK = "the number of the rank, or of its device or host"
    OWN_DATA = "the data that each rank reads"
    CLOCK = "the clock of each process"
    RANDOM = "random numbers"
    FILES = "what a folder or a file holds at that moment"
    ENVIRONMENT = "the environment of the process"
    REDUCED = "a collective that gives all ranks the same"
    EQUAL = "the same program text on all ranks"
    UNKNOWN = "code that was not read"

    @property
    def differs(self) -> bool:
        """Whether it gives ranks different values, as far as it is known."""
        return self in (Origin.RANK, Origin.OWN_DATA, Origin.CLOCK, Origin.RANDOM)


_MOVED = {
    "torch.distributed.distributed_c10d": "torch.distributed",
    "torch.nn.parameter": "torch.nn",
    "torch.nn.parallel.distributed": "torch.nn.parallel",
    "torch.utils.data.distributed": "torch.utils.data",
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.distributed.device_mesh": "torch.distributed",
    "lightning.LightningModule.trainer": "lightning.Trainer",
    "lightning.Trainer.fabric": "lightning.Fabric",
    "transformers.Trainer.args": "transformers.TrainingArguments",
    "transformers.Trainer.state": "transformers.TrainerState",
    "transformers.Trainer.accelerator": "accelerate.Accelerator",
    "lightning.pytorch": "lightning",
    "pytorch_lightning": "lightning",
    "lightning_fabric": "lightning.fabric",
    "lightning.fabric.Fabric": "lightning.Fabric",
    "lightning.trainer.Trainer": "lightning.Trainer",
    "ray.air.session": "ray.train",
    "datetime.datetime": "datetime",
    "ignite.distributed.utils": "ignite.distributed",
    "tqdm.auto": "tqdm",
    "tqdm.std": "tqdm",
    "pathlib.PosixPath": "pathlib.Path",
    **{
        f"pathlib.Path.{name}": "pathlib.Path"
        for name in (
            *("joinpath", "with_suffix", "with_name", "with_stem", "resolve", "absolute", "expanduser"),
            *("parent", "home", "cwd"),
        )
    },
}


@cache
def canonical(name: str) -> str:
    """The documented name of what a library offers under several."""
    for _ in range(2):
        for moved, to in _MOVED.items():
            if name == moved or name.startswith(f"{moved}."):
                name = to + name[len(moved) :]
    return name


_RANK = """
torch.distributed.get_rank torch.distributed.get_node_local_rank torch.distributed.get_group_rank
torch.cuda.current_device torch.distributed.init_device_mesh.get_local_rank
torch.distributed.init_device_mesh.get_rank torch.distributed.init_device_mesh.get_coordinate
torch.distributed.ProcessGroup.rank
accelerate.Accelerator.is_main_process accelerate.Accelerator.is_local_main_process
accelerate.Accelerator.is_last_process accelerate.Accelerator.process_index
accelerate.Accelerator.local_process_index
accelerate.PartialState.is_main_process accelerate.PartialState.is_local_main_process
accelerate.PartialState.is_last_process accelerate.PartialState.process_index
accelerate.PartialState.local_process_index
lightning.Trainer.is_global_zero lightning.Trainer.global_rank lightning.Trainer.local_rank
lightning.Trainer.node_rank lightning.LightningModule.global_rank lightning.LightningModule.local_rank
lightning.Fabric.is_global_zero lightning.Fabric.global_rank lightning.Fabric.local_rank lightning.Fabric.node_rank
transformers.Trainer.is_world_process_zero transformers.Trainer.is_local_process_zero
transformers.TrainingArguments.process_index transformers.TrainingArguments.local_rank
transformers.TrainingArguments.local_process_index transformers.TrainingArguments.should_save
transformers.TrainingArguments.should_log transformers.TrainerState.is_world_process_zero
transformers.TrainerState.is_local_process_zero
ignite.distributed.get_rank ignite.distributed.get_local_rank ignite.distributed.get_node_rank
ray.train.get_context.get_world_rank ray.train.get_context.get_local_rank ray.train.get_context.get_node_rank
horovod.torch.rank horovod.torch.local_rank torch_xla.core.xla_model.get_ordinal
torch_xla.runtime.global_ordinal torch_xla.core.xla_model.is_master_ordinal
deepspeed.comm.get_rank deepspeed.comm.get_local_rank
os.getpid socket.gethostname platform.node argparse.ArgumentParser.parse_args.local_rank
"""
_EQUAL = """
torch.distributed.get_world_size torch.distributed.is_initialized torch.distributed.is_available
torch.distributed.get_backend torch.cuda.is_available torch.distributed.barrier torch.manual_seed
torch.distributed.init_process_group torch.distributed.is_torchelastic_launched torch.cuda.device_count
accelerate.Accelerator.num_processes accelerate.Accelerator.sync_gradients lightning.Trainer.world_size
lightning.Trainer.current_epoch lightning.Trainer.global_step lightning.Fabric.world_size
lightning.LightningModule.current_epoch lightning.LightningModule.global_step
ignite.distributed.get_world_size ray.train.get_context.get_world_size horovod.torch.size
argparse.ArgumentParser.parse_args sys.argv accelerate.Accelerator.wait_for_everyone
transformers.Trainer torch.compile torch.nn.Parameter
"""
_REDUCED = """
torch.distributed.nn.all_reduce torch.distributed.nn.functional.all_reduce
torch.distributed._functional_collectives.all_reduce
accelerate.Accelerator.gather accelerate.Accelerator.gather_for_metrics accelerate.Accelerator.reduce
accelerate.utils.gather accelerate.utils.reduce accelerate.utils.broadcast accelerate.utils.gather_object
accelerate.utils.broadcast_object_list
lightning.Fabric.all_reduce lightning.Fabric.all_gather lightning.Fabric.broadcast lightning.LightningModule.all_gather
lightning.Trainer.callback_metrics lightning.Trainer.strategy.broadcast lightning.Trainer.strategy.reduce
ignite.distributed.all_reduce ignite.distributed.all_gather ignite.distributed.broadcast
horovod.torch.allreduce horovod.torch.allgather horovod.torch.broadcast horovod.torch.broadcast_object
torch_xla.core.xla_model.all_reduce torch_xla.core.xla_model.mesh_reduce
"""
_CLOCK = """
time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns time.process_time
time.localtime time.gmtime time.strftime time.ctime
datetime.now datetime.utcnow datetime.today datetime.date.today
"""
_FILES = """
os.listdir os.scandir os.walk os.path.exists os.path.isfile os.path.isdir os.path.getsize os.path.getmtime os.stat
glob.glob glob.iglob builtins.open torch.load json.load pickle.load
pathlib.Path.exists pathlib.Path.is_file pathlib.Path.is_dir pathlib.Path.iterdir pathlib.Path.glob
pathlib.Path.rglob pathlib.Path.read_text pathlib.Path.read_bytes pathlib.Path.stat
shutil.disk_usage
"""
_RANDOM = """
random.random random.randint random.randrange random.choice random.choices random.sample random.uniform random.gauss
random.getrandbits random.betavariate random.expovariate random.normalvariate random.triangular
uuid.uuid4 uuid.uuid1 os.urandom tempfile.mkdtemp tempfile.mkstemp
torch.rand torch.randn torch.randint torch.randperm torch.normal torch.bernoulli torch.multinomial torch.rand_like
torch.randn_like torch.poisson torch.seed torch.initial_seed
"""
_RANDOM_MODULES = ("numpy.random.", "secrets.")
_SEEDING = ("seed", "Random", "default_rng", "RandomState", "get_state", "set_state")
ORIGINS = {
    name: origin
    for names, origin in (
        (_RANK, Origin.RANK),
        (_EQUAL, Origin.EQUAL),
        (_REDUCED, Origin.REDUCED),
        (_CLOCK, Origin.CLOCK),
        (_FILES, Origin.FILES),
        (_RANDOM, Origin.RANDOM),
    )
    for name in names.split()
}


def origin_of(name: str) -> Origin | None:
    """What a function, a method or an attribute of a library gives; None of what is made of what it is given."""
    known = ORIGINS.get(name)
    if known is None and name.startswith(_RANDOM_MODULES) and name.rpartition(".")[2] not in _SEEDING:
        return Origin.RANDOM
    return known


_FIRST = ("main_process", "is_global_zero", "_process_zero", "is_master_ordinal", "should_save", "should_log")
_LAST = "is_last_process"
"""How what libraries give that is so on rank 0, or on the last rank, ends."""
_SIZES = ("get_world_size", "WORLD_SIZE", "world_size", "num_processes", "horovod.torch.size")
_OF_SEVERAL = (*_SIZES, "is_initialized", "is_available", "device_count")


def number_on(name: str, rank: int, size: int) -> int:
    """What something with the origin RANK is on one rank."""
    if name.endswith(_LAST):
        return rank == size - 1
    return rank == 0 if name.endswith(_FIRST) else rank


def is_size(name: str) -> bool:
    """Whether it is the number of ranks."""
    return name.strip("']").endswith(_SIZES)


def tells_of_several(name: str) -> bool:
    """Whether it may tell a job of several ranks from a single process."""
    return name.strip("']").endswith(_OF_SEVERAL)


MAKE_GROUPS = frozenset(
    {
        *("accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "ignite", "ray", "deepspeed"),
        *("horovod", "transformers", "composer", "torch_xla", "colossalai", "fairscale", "mmengine"),
    }
)
"""Libraries with functions that make and destroy process groups for their users."""


def is_module(name: str) -> bool:
    """Whether a class of a library is a module: torch's own, ``LightningModule``, ``PreTrainedModel``."""
    return name.startswith("torch.nn.") or name.endswith(("Module", "Model"))


def averages_weights(name: str) -> bool:
    """Whether it makes what averages weights over ranks from time to time."""
    of_averagers = name.startswith("torch.distributed.algorithms.model_averaging.")
    return of_averagers or name == "torch.distributed.optim.PostLocalSGDOptimizer"


GATHERING = frozenset({"full_tensor", "consolidate_state_dict"})
"""Methods of torch's sharded tensors and optimizers that every rank has to call."""
_STATES = ("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict")


def gathers(name: str) -> bool:
    """Whether every rank has to call a function: a collective, or what is built on one."""
    last = name.rpartition(".")[2]
    kind = kind_of(last)
    of_torch = name.startswith("torch.distributed.") and (last in _STATES or kind not in (None, Kind.PAIR))
    return of_torch or origin_of(name) is Origin.REDUCED or name == "accelerate.Accelerator.get_state_dict"


def parametrizes(name: str) -> bool:
    """Whether it puts other parameters in the place of a module's own."""
    return name.startswith("torch.nn.utils.") and name.rpartition(".")[2] in (
        *("weight_norm", "spectral_norm", "orthogonal", "register_parametrization"),
    )


def is_schedule(name: str) -> bool:
    """Whether it makes a learning-rate scheduler, of torch or of transformers."""
    of_transformers = name.startswith("transformers.") and ".get_" in name and "schedule" in name
    return name.startswith("torch.optim.lr_scheduler.") or of_transformers


GENERATORS = (
    "random.Random",
    "numpy.random.default_rng",
    "numpy.random.RandomState",
    "numpy.random.Generator",
)
"""Classes whose objects draw random numbers of their own, from the seed that they are given."""
SEEDS = {"random.seed": "python", "numpy.random.seed": "numpy", "torch.manual_seed": "torch"}
"""What seeds a global random stream."""
_ORDERS = ("shuffle", "permutation", "permuted", "sample", "choice", "randperm")
_SPLITS = ("sklearn.model_selection.train_test_split", "torch.utils.data.random_split")
FOLDERS = frozenset(
    {
        *("os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob"),
        *("pathlib.Path.iterdir", "pathlib.Path.glob", "pathlib.Path.rglob"),
    }
)
"""Functions that list what is in a folder, in no order."""


def draws(name: str) -> bool:
    """Whether a function gives random numbers, or what it is given in a random order."""
    of_generator = name.startswith(tuple(f"{it}." for it in GENERATORS))
    return of_generator or origin_of(name) is Origin.RANDOM or name in ("random.shuffle", *_SPLITS)


def puts_in_order(name: str) -> bool:
    """Whether a function that draws puts something in an order."""
    return name.rpartition(".")[2] in _ORDERS or name in _SPLITS[:1]


REDUCES = {
    **{f"torch.distributed.{operation.name}": operation.fills for operation in OPERATIONS if operation.fills},
    "horovod.torch.allreduce_": (0, "tensor"),
    "horovod.torch.broadcast_": (0, "tensor"),
}
"""Collectives that make an argument equal on all ranks, with its position and name."""
TO_ONE = frozenset(f"torch.distributed.{it.name}" for it in OPERATIONS if it.kind is Kind.TO_ONE)
"""Collectives after which one rank has what all gave."""
REDUCING = frozenset(it.rpartition(".")[2] for it in (*REDUCES, *TO_ONE))
"""How both are called."""

RETURNS_ITS_ARGUMENTS = frozenset(
    {
        *("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_model"),
        *("accelerate.Accelerator.prepare_data_loader", "accelerate.Accelerator.prepare_optimizer"),
        *("lightning.Fabric.setup", "lightning.Fabric.setup_dataloaders", "lightning.Fabric.setup_module"),
        *("ray.train.torch.prepare_data_loader", "ray.train.torch.prepare_model"),
        *("tqdm.tqdm", "tqdm.trange", "tqdm.notebook.tqdm", "rich.progress.track", "torch.compile"),
        *("builtins.iter", "builtins.reversed", "copy.copy", "copy.deepcopy", "typing.cast"),
        *("ignite.distributed.auto_model", "ignite.distributed.auto_optim"),
        "functools.wraps",
    }
)
"""Functions whose result stands for what they are given."""

LOADERS = frozenset(
    {
        *("torch.utils.data.DataLoader", "torchdata.stateful_dataloader.StatefulDataLoader"),
        *("ignite.distributed.auto_dataloader", "torch_xla.distributed.parallel_loader.MpDeviceLoader"),
        *("ray.train.get_dataset_shard.iter_torch_batches", "ray.train.get_dataset_shard.iter_batches"),
        *("torch.utils.data.DistributedSampler", "lightning.fabric.utilities.DataLoader"),
    }
)
"""What gives each rank data of its own where it is iterated."""

HOOKS = {
    "lightning.Callback": ("", "lightning.Trainer", "lightning.LightningModule"),
    "transformers.TrainerCallback": ("", "transformers.TrainingArguments", "transformers.TrainerState"),
}
"""Base classes whose methods a library calls, and the classes of the parameters that it gives them."""
DATA_HOOKS = {"lightning.LightningModule": ("training_step", "validation_step", "test_step", "predict_step")}
"""Methods that a library calls with a batch of each rank's own as the first argument."""

RANK_ARGUMENTS = {
    "torch.distributed.init_process_group": (None, "rank"),
    "torch.utils.data.DistributedSampler": (2, "rank"),
    "torch.distributed.TCPStore": (None, "rank"),
}
"""Functions that take the number of the rank, with its position and name."""
SPAWNS = {"torch.multiprocessing.spawn": 0, "torch.multiprocessing.start_processes": 0}
"""They call their first argument with the number of the rank before ``args``."""
PROCESSES = {**SPAWNS, "torch.multiprocessing.Process": 1, "multiprocessing.Process": 1}
"""What starts processes, with the position of the function that they run."""

ENDS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit", "os.abort"})
"""Functions that do not return."""

_PURE = (
    *("builtins.", "math.", "cmath.", "numpy.", "statistics.", "operator.", "itertools.", "collections."),
    *("functools.", "torch.", "torchvision.", "json.", "copy.", "os.path.", "pathlib.", "string.", "re."),
    *("decimal.", "fractions.", "datetime", "argparse.", "dataclasses.", "typing.", "types."),
    *("contextlib.", "torchmetrics.functional."),
)
_NOT_PURE = (
    *("torch.distributed.", "torch.load", "torch.hub.", "builtins.input", "builtins.eval"),
    "builtins.getattr",
)


def is_pure(name: str) -> bool:
    """Whether what a function or method gives is made of what it is given, and nothing else."""
    return name.startswith(_PURE) and (not name.startswith(_NOT_PURE) or name.endswith(".__call__"))


@cache
def is_known(name: str) -> bool:
    """Whether this module tells what a function gives."""
    tables = (ORIGINS, REDUCES, RETURNS_ITS_ARGUMENTS, LOADERS, RANK_ARGUMENTS)
    return any(name in table for table in tables) or is_pure(name) or origin_of(name) is not None


RETURNS_ITS_OBJECT = frozenset(
    {
        *("to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "type", "to_empty"),
        *("requires_grad_", "apply", "share_memory", "detach", "clone", "contiguous"),
    }
)
"""Methods of tensors and modules that return what they belong to, mostly at another place or of another type."""
WRAPPERS = {
    "torch.nn.parallel.DistributedDataParallel": "module",
    "torch.nn.DataParallel": "module",
    "torch.distributed.fsdp.FullyShardedDataParallel": "module",
    "torch.optim.swa_utils.AveragedModel": "module",
}
"""Classes that hold their first argument as this attribute, and call it."""
MADE_BY_ONE_RANK = frozenset(
    {"torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter", "tqdm.tqdm"}
)
"""Classes of libraries of which a program mostly makes an object on one rank only."""
NAMESPACES = frozenset({"argparse.Namespace", "types.SimpleNamespace"})
"""Classes whose objects have what they are given by name as attributes."""
LOCKS = frozenset({"fcntl.flock", "fcntl.lockf"})
"""Functions that let one process of a host go on at a time."""
PLACES = frozenset({"device", "device_ids", "output_device", "map_location", "pin_memory", "dtype"})
"""Arguments that say so."""
CHANGES = frozenset(
    {
        *("append", "extend", "insert", "add", "update", "setdefault", "appendleft", "extendleft"),
        "__setitem__",
    }
)
"""Methods of Python's containers that put in what they are given; torch's end with ``_``."""
KINDS = frozenset({"builtins.isinstance", "builtins.hasattr", "builtins.callable", "builtins.type"})
"""Functions whose result is made of the kind of what they are given, not of its value."""
FINITE = frozenset(
    f"{module}.{name}"
    for module in ("math", "cmath", "numpy", "torch")
    for name in ("isnan", "isinf", "isfinite", "isneginf", "isposinf")
)
"""Functions that ask whether a number is finite at all; tensors have methods of the same names."""
NAMED_BY_CLOCK = {
    "torch.utils.tensorboard.SummaryWriter": (0, "log_dir"),
    "tensorboardX.SummaryWriter": (0, "logdir"),
}
"""What names a folder by the clock, unless this argument is one."""
