"""Stand-ins for GPU-only packages that SGLang imports at start and its CPU path never uses.

`triton` and `sgl_kernel` have no build for a plain CPU, and `torchvision` must match torch's build to the byte. On the path taken here
(device `cpu`, attention backend `torch_native`) their names are only imported, used as decorators and written into annotations.
So any name can be imported, and whatever would compute something raises instead: nothing can be silently wrong.

A `.pth` file in the SGLang environment imports this module in each of its processes (see demo/environments.py). A real package wins:
the finder is asked last.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

DECORATING = "triton"
PACKAGES = (DECORATING, "torchvision", "sgl_kernel")
NO_DRIVER = "triton.runtime.driver.active"
"""Asked for to learn which GPU there is; real Triton raises here without one, and its users then turn to the CPU."""


class StandIn:
    """Any name below a package that is not here: can be subclassed, annotated with and asked for attributes, not computed with."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = name.rpartition(".")[0]

    def __getattr__(self, attribute: str) -> StandIn:
        full = f"{self.__name__}.{attribute}"
        if attribute.startswith("__") or full == NO_DRIVER:
            raise AttributeError(full)
        child = StandIn(full)
        setattr(self, attribute, child)
        return child

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """As a base class it adds nothing (PEP 560)."""
        return ()

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        return False

    def __or__(self, other: object) -> StandIn:
        return self

    __ror__ = __or__

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Triton's names work as decorators, with and without arguments, and as plain configuration objects; all else raises."""
        if self.__name__.partition(".")[0] != DECORATING:
            _refuse(self.__name__)
        if len(args) == 1 and not options and callable(args[0]):
            return Kernel(args[0])
        return StandIn(self.__name__)

    def __repr__(self) -> str:
        return f"<stand-in for {self.__name__}>"


class Kernel:
    """A GPU kernel that was defined and must not be launched."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        functools.update_wrapper(self, function, updated=())

    def __getitem__(self, grid: object) -> NoReturn:
        _refuse(f"kernel {self.__name__}")  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        _refuse(f"kernel {self.__name__}")  # type: ignore[attr-defined]


class StandInModule(types.ModuleType):
    """A module in which every public name is there."""

    def __getattr__(self, attribute: str) -> StandIn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        child = StandIn(f"{self.__name__}.{attribute}")
        setattr(self, attribute, child)
        return child


class StandInFinder:
    """Import finder and loader for the packages that are not here."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """A module spec for any module below PACKAGES."""
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if _ours(name) else None  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> StandInModule:
        """An empty stand-in module."""
        return StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module what is really used on the CPU: two lines of arithmetic, and the answer "no backends"."""
        module.__version__ = "0.0.0"  # type: ignore[attr-defined]
        if module.__name__ == "triton":
            module.cdiv = lambda numerator, denominator: -(numerator // -denominator)  # type: ignore[attr-defined]
            module.next_power_of_2 = lambda number: 1 << (number - 1).bit_length() if number > 0 else 1  # type: ignore[attr-defined]
        if module.__name__ == "triton.backends":
            module.backends = {}  # type: ignore[attr-defined]


def _ours(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"{what} needs a GPU build that is not installed here; this environment serves on the CPU only")


def _say_absent_when_asked() -> None:
    """Libraries that ask first (`importlib.util.find_spec`) are told the truth, and leave the package alone."""
    find_spec = importlib.util.find_spec

    @functools.wraps(find_spec)
    def honest(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        spec = find_spec(name, package)
        return None if spec is not None and isinstance(spec.loader, StandInFinder) else spec

    importlib.util.find_spec = honest


def install() -> None:
    """Put the finder last on the import path; harmless when done twice."""
    if not any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        sys.meta_path.append(StandInFinder())
        _say_absent_when_asked()


install()
