"""Main program of the solver's own process: reads models from standard input, answers on standard output.

Anything a solver library prints goes to standard error, so that it cannot break the answers.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from dataclasses import replace

from solver.backends import load_ortools, solve_here
from solver.move_order_wire import answer_moves, is_moves_request
from solver.wire import HEADER_BYTES, frame, pack_answer, unpack_request

REPORT_MARGIN_S = 0.15
"""Kept back from the deadline for sending the answer."""


def main(memory_mb: int = 0) -> None:
    """Serve until standard input closes.

    Args:
        memory_mb: Address space of this process and of each helper that it starts, at most; 0 = no bound. A solver
            that asks for more fails here, and not the machine.
    """
    if memory_mb > 0:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    load_ortools()
    requests = sys.stdin.buffer
    while header := requests.read(HEADER_BYTES):
        body = requests.read(int.from_bytes(header, "little"))
        answers.write(frame(answer_moves(body) if is_moves_request(body) else _answer(body)))
        answers.flush()


def _answer(body: bytes) -> bytes:
    model, limits, start, backend, deadline_s = unpack_request(body)
    left_s = max(deadline_s - time.monotonic() - REPORT_MARGIN_S, 0.01)
    return pack_answer(solve_here(model, replace(limits, time_limit_s=left_s), start, backend))


if __name__ == "__main__":
    main(int(sys.argv[1]))
