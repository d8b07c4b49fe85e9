"""How many bytes of attention maps are alive at a time?

Every tensor that an operation makes is looked at. Those of the size of a map are followed until
their memory is freed; what lies in a file is not counted.
"""

from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveMaps(TorchDispatchMode):
    """Follows the maps (…, length, length) that are made in a block."""

    def __init__(self, length: int, monkeypatch: Any) -> None:
        super().__init__()
        self.length, self.peak = length, 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._files: list[tuple[int, int]] = []
        read = torch.frombuffer

        def noted(*given: Any, **options: Any) -> Tensor:
            tensor = read(*given, **options)
            self._files.append((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes))
            return tensor

        monkeypatch.setattr(torch, "frombuffer", noted)

    @property
    def held(self) -> int:
        """Bytes that are alive now."""
        self._alive = {key: known for key, known in self._alive.items() if not known[0].expired()}
        return sum(size for _, size in self._alive.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        fresh = [self._follow(each) for each in tree_iter(made) if self._is_map(each)]
        if any(fresh):
            self.peak = max(self.peak, self.held)
        return made

    def _is_map(self, made: Any) -> bool:
        return isinstance(made, Tensor) and made.shape[-2:] == (self.length, self.length)

    def _follow(self, made: Tensor) -> bool:
        storage = made.untyped_storage()
        place, known = storage.data_ptr(), self._alive.get(storage._cdata)
        if (known and not known[0].expired()) or any(a <= place < b for a, b in self._files):
            return False
        self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return True
