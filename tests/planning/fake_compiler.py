"""A compiler that only computes, instead of libtpu's."""

from albert_tf.planning.plan import GIB
from albert_tf.planning.topologies import find_topology

# Bytes of a row by form.
ROW = {"loop_remat": 0.04 * GIB, "loop": 0.4 * GIB, "unrolled": 0.2 * GIB}


class Compiler:
    """Compiles nothing: memory grows with the rows at once, and other steps are slower.

    Args:
        fixed: float. GiB that do not depend on the rows.
        fast: int. The rows with which memory traffic is least.
    """

    def __init__(self, fixed=0.5, fast=16):
        self.fixed, self.fast = fixed * GIB, fast
        self.requests = []

    def __call__(self, request):
        self.requests.append((request["depth"], request["parts"]))
        topology = find_topology(request["topology"])
        per_device = request["settings"]["train_batch_size"] // topology.num_devices
        rows = per_device // request["parts"]
        temporaries = int(self.fixed + ROW[request["depth"]] * rows)
        if temporaries > topology.chip.memory_gib * GIB - GIB:
            return {"needed": temporaries}
        cost = 4 if request["depth"] == "loop_remat" else 3
        slow = max(rows / self.fast, self.fast / rows)
        return {
            "arguments": GIB // 2,
            "temporaries": temporaries,
            "results": 0,
            "code": GIB // 2,
            "flops": cost * 10**13,
            "memory_bytes": int(slow * 10**11),
            "kinds": {},
            "collectives": [["all-reduce", 1, 46_000_000, topology.num_devices]],
            "compile_seconds": 0.1,
        }
