"""Says where work hands a value to the host, which a graph of a device cannot hold."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_READS = {
    "_local_scalar_dense": "reads a number on the host",
    "nonzero": "makes a tensor whose size depends on its values",
    "is_nonzero": "asks on the host whether a number is 0",
    "equal": "compares tensors on the host",
    "masked_select": "makes a tensor whose size depends on its values",
    "_unique2": "makes a tensor whose size depends on its values",
}


class HostReadError(RuntimeError):
    """Why work cannot be recorded."""


class NoHostReads(TorchDispatchMode):
    """Raises HostReadError where a value leaves the device, or a tensor moves between devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1]
        if name in _READS:
            raise HostReadError(f"it {_READS[name]}")
        device = (kwargs or {}).get("device")
        if name == "_to_copy" and device is not None and device != args[0].device:
            raise HostReadError("it moves a tensor between devices")
        return func(*args, **(kwargs or {}))
