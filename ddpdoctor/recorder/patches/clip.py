"""Clipping of gradients: the norm that was found, and whether a GradScaler still had them scaled."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from types import GeneratorType
from typing import Any

from ..digest import is_plain, unseen
from ..events.updates import Clip
from ..guard import guarded
from ..session import Session
from ..traceback_frames import leave_out
from ..training import Training
from .scaler import Scalers

_MODULES = ("torch.nn.utils.clip_grad", "torch.nn.utils")
_LIMITS = {"clip_grad_norm_": "max_norm", "clip_grad_norm": "max_norm", "clip_grad_value_": "clip_value"}


def install(session: Session) -> None:
    """Watch torch.nn.utils.clip_grad_norm_ and clip_grad_value_."""
    for name, limit in _LIMITS.items():
        session.patch_function(_MODULES, name, functools.partial(_watch, session, limit))


def _watch(session: Session, limit: str, original: Callable[..., Any]) -> Callable[..., Any]:
    training, compiler = Training.of(session), session.torch.compiler
    is_traced, is_compiling = compiler.is_dynamo_compiling, compiler.is_compiling

    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if is_traced() or not session.detailed or is_compiling():
                return original(parameters, *args, **kwargs)
            begin = time.monotonic()
            given = [parameters] if isinstance(parameters, session.torch.Tensor) else parameters
            if isinstance(parameters, GeneratorType):
                given = []
                parameters = _noting(parameters, given)  # it can be read only once
            elif not isinstance(given, list | tuple):
                given = parameters = list(parameters)
            result = original(parameters, *args, **kwargs)
            _tell(training, begin, given, args[0] if args else kwargs.get(limit), result)
            Scalers.of(session).by_hand.forget()  # what was told of it is not to be found again
            return result
        except BaseException as passing:
            leave_out(passing)
            raise

    return clip


def _noting(parameters: Iterator[Any], noted: list[Any]) -> Iterator[Any]:
    for parameter in parameters:
        noted.append(parameter)
        yield parameter


@guarded
def _tell(training: Training, begin: float, given: Sequence[Any], limit: Any, norm: Any) -> None:
    session = training.session
    clip = Clip(begin, session.here(), **Scalers.of(session).stage(given))
    clip.keys, clip.backwards = len(given), training.backwards
    with unseen(training.torch):
        # To read a sharded norm would be a collective.
        sharded = isinstance(norm, training.torch.Tensor) and not is_plain(training.torch, norm)
        clip.norm = None if norm is None or sharded else float(norm)
        clip.limit = None if limit is None else float(limit)
    training.session.event(clip)
