"""Measures pipewright beside subprocess and asyncio, interleaved in one run: `python python/bench/beside.py`.

Prints a table of medians with their spread (the middle half), and ratios: below 1, pipewright takes less time. Run it
on a machine that does nothing else.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, List, Tuple

import pipewright

MIB = 1 << 20


def times(functions: List[Callable[[], Any]], rounds: int) -> List[List[float]]:
    """Returns the times of each function, called in turn."""
    taken: List[List[float]] = [[] for _ in functions]
    for function in functions:
        function()
    for round_ in range(rounds):
        # The order changes, so that no function always follows the same one.
        order = range(len(functions)) if round_ % 2 else reversed(range(len(functions)))
        for index in order:
            begun = time.perf_counter()
            functions[index]()
            taken[index].append(time.perf_counter() - begun)
    return taken


def shown(taken: List[float]) -> str:
    low, middle, high = statistics.quantiles(taken, n=4)
    return f"{middle * 1e3:.2f} ms ({low * 1e3:.2f}..{high * 1e3:.2f})"


def row(name: str, theirs: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> Tuple[str, float]:
    first, second = times([theirs, ours], rounds)
    # The ratio of each pair of neighbours, so that what changes slowly does not count.
    ratios = sorted(b / a for a, b in zip(first, second))
    low, ratio, high = statistics.quantiles(ratios, n=4)
    print(f"| {name} | {shown(first)} | {shown(second)} | **{ratio:.2f}** ({low:.2f}..{high:.2f}) |", flush=True)
    return name, ratio


async def theirs_at_once(count: int) -> None:
    async def one() -> None:
        child = await asyncio.create_subprocess_exec("true")
        await child.wait()

    await asyncio.gather(*(one() for _ in range(count)))


async def ours_at_once(count: int, **options: Any) -> None:
    await asyncio.gather(*(pipewright.run_async(["true"], **options) for _ in range(count)))


async def theirs_captured(count: int) -> None:
    async def one() -> None:
        child = await asyncio.create_subprocess_exec("echo", "hi", stdout=-1, stderr=-1)
        await child.communicate()

    await asyncio.gather(*(one() for _ in range(count)))


async def ours_captured(count: int) -> None:
    await asyncio.gather(*(pipewright.run_async(["echo", "hi"], capture_output=True) for _ in range(count)))


def compare_starts(rounds: int) -> None:
    """Prints the time of Python programs that import a module, and of those that run a command with it."""
    use = 'run(["true"])'
    modules = ["subprocess", "pipewright"]
    programs = {"empty": ""}
    programs.update({f"`import {it}`": f"import {it}" for it in modules})
    programs.update({f"`import {it}`, `{use}`": f"import {it} as it; it.{use}" for it in modules})

    def start(program: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-I", "-c", program], check=True)

    print("\n| program | shortest, ms | median (middle half), ms |\n|---|--:|--:|")
    measured = times([start(it) for it in programs.values()], rounds)
    for name, figures in zip(programs, measured):
        low, middle, high = statistics.quantiles([it * 1e3 for it in figures], n=4)
        print(f"| {name} | {min(figures) * 1e3:.1f} | {middle:.1f} ({low:.1f}..{high:.1f}) |")


def main() -> None:
    quick = "--quick" in sys.argv
    scale = 10 if quick else 1
    print(f"Python {platform.python_version()}, {platform.machine()}, Linux {platform.release()}, ", end="")
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, trees: {pipewright.run(['true']).containment}\n"
    )
    print("| | subprocess or asyncio | pipewright | time ÷ theirs |\n|---|---|---|---|")
    row('`run(["true"])`', lambda: subprocess.run(["true"]), lambda: pipewright.run(["true"]), 500 // scale)
    row(
        '`run(["true"])`, `tree=False`',
        lambda: subprocess.run(["true"]),
        lambda: pipewright.run(["true"], tree=False),
        500 // scale,
    )
    row(
        '`run(["echo", "hi"], capture_output=True)`',
        lambda: subprocess.run(["echo", "hi"], capture_output=True),
        lambda: pipewright.run(["echo", "hi"], capture_output=True),
        300 // scale,
    )
    flood = ["head", "-c", str(64 * MIB), "/dev/zero"]
    row(
        "capture of 64 MiB",
        lambda: subprocess.run(flood, capture_output=True),
        lambda: pipewright.run(flood, capture_output=True),
        30 // scale,
    )
    row(
        "64 MiB by `Popen.communicate`",
        lambda: subprocess.Popen(flood, stdout=-1).communicate(),
        lambda: pipewright.Popen(flood, stdout=-1).communicate(),
        30 // scale,
    )
    count = 1000 // scale
    row(
        f"{count} children by asyncio",
        lambda: asyncio.run(theirs_at_once(count)),
        lambda: asyncio.run(ours_at_once(count)),
        10,
    )
    row(
        f"{count} children by asyncio, `tree=False`",
        lambda: asyncio.run(theirs_at_once(count)),
        lambda: asyncio.run(ours_at_once(count, tree=False)),
        10,
    )
    row(
        f"{count} captures by asyncio",
        lambda: asyncio.run(theirs_captured(count)),
        lambda: asyncio.run(ours_captured(count)),
        10,
    )
    compare_starts(100 // scale)


if __name__ == "__main__":
    main()
