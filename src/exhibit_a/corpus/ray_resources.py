"""How much of a cluster may a pool of actors claim?

Ray reserves CPUs and GPUs, and a request for more than the cluster has waits for ever. So the claim
is computed before it is made: one CPU stays free for Ray's own tasks, every actor on a GPU gets a
whole one, and a pool that does not fit is refused.
"""

from dataclasses import dataclass

from exhibit_a.errors import BadRequestError


@dataclass(frozen=True)
class Claim:
    """How many actors there are, and what each claims of the cluster."""

    actors: int
    cpus: float
    gpus: int


def claim_of(cpus: float, gpus: float, *, workers: int | None, device: str | None) -> Claim:
    """What a pool may claim so that the cluster can still run: never all of it, never too much.

    Without a number of workers there is one for every CPU but one, or one for every GPU.
    """
    if cpus <= 0:
        raise BadRequestError("The Ray cluster has no CPU. Add a machine that has.")
    if not on_gpu(device):
        actors = workers or max(1, int(cpus) - 1)
        return Claim(actors, share_of_cpu(cpus, actors), 0)
    actors = workers or int(gpus)
    if gpus < 1 or actors > gpus:
        raise BadRequestError(
            f"The Ray cluster has {gpus:.0f} GPUs, and every worker on {device!r} needs one: "
            f"{actors or 'some'} were asked for. Ask for fewer workers or add machines."
        )
    return Claim(actors, share_of_cpu(cpus, actors), 1)


def share_of_cpu(cpus: float, actors: int) -> float:
    """The part of a CPU that each actor claims; one CPU, or half of the only one, stays free."""
    free = 1.0 if cpus > 1 else cpus / 2
    return min(1.0, int(1e4 * (cpus - free) / actors) / 1e4)  # Ray counts in ten-thousandths


def on_gpu(device: str | None) -> bool:
    """Whether a device is what Ray counts as a GPU."""
    return (device or "").partition(":")[0] == "cuda"
