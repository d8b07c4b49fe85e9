"""Asks how much memory is free, and gives unused memory back to the system."""

import ctypes
import sys
from functools import cache
from pathlib import Path

import torch

BACKWARDS = 2e8  # bytes that copies run backwards together may keep, if one keeps no more


def free_bytes(device: torch.device) -> int:
    """How much memory may still be taken on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [_meminfo(), _cgroup()]
    return min((known for known in limits if known is not None), default=2**31)


def give_back() -> None:
    """Give memory that was freed back to the system, where the allocator would keep it."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> "ctypes._NamedFuncPointer | None":
    """What the C library of most Linux systems has for it."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def _meminfo() -> int | None:
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    lines = dict(line.split(":", 1) for line in table.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else None


def _cgroup() -> int | None:
    """What a container is still allowed, where it is limited."""
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not (limit.exists() and used.exists()) or limit.read_text().strip() == "max":
        return None
    return max(int(limit.read_text()) - int(used.read_text()), 0)
