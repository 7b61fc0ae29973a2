"""How much memory a computation holds at once, measured while it runs."""

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Held(TorchDispatchMode):
    """Counts, inside a `with`, the bytes of tensors that operations make: `most` alive at once.

    The memory of `known` tensors, e.g. parameters, does not count, whoever makes views of it. Nor
    does what an operation needs inside, unseen from Python.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known = [tensor.untyped_storage() for tensor in known]
        self._alive: dict[int, object] = {storage._cdata: storage for storage in self._known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor):
                self._note(tensor)
        return made

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address in self._alive:
            return

        def free(_: object) -> None:
            del self._alive[address]
            self.now -= size

        self._alive[address] = weakref.ref(storage, free)
        self.now += size
        self.most = max(self.most, self.now)
