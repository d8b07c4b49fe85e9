"""How much memory may still be taken?"""

from pathlib import Path

import torch


def free_bytes(device: torch.device) -> int:
    """How much memory may still be taken on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [_meminfo(), _cgroup()]
    return min((known for known in limits if known is not None), default=2**31)


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
