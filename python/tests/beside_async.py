"""Cases of `beside.py` in an event loop: beside `asyncio.subprocess`, with the turns of the loop counted."""

from __future__ import annotations

import asyncio
import random
import subprocess
from typing import Any, Callable, List, Tuple

from beside_shared import LIMIT, Case, descriptors, left_of

import pipewright

SIZES = [0, 1, 5000, 65536, 65537, 200000, (1 << 20) + 1, 2500000]
#: The most items that a reader is given between two turns of the loop.
ITEMS_PER_TURN = 256


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self.handle: Any = None

    def __enter__(self) -> Turns:
        self.again()
        return self

    def again(self) -> None:
        self.count += 1
        self.handle = asyncio.get_running_loop().call_soon(self.again)

    def __exit__(self, *_: object) -> None:
        self.handle.cancel()


def small_script(case: Case, r: random.Random) -> str:
    parts = []
    for _ in range(r.randint(0, 4)):
        to = r.choice(["", ">&2"])
        parts.append(r.choice([f"head -c {r.choice(SIZES)} {case.data('plain')} {to}", f"echo w {to}", "sleep 0.01"]))
    parts.append(r.choice(["exec 2>&-", "exec >&-", "true", "cat"]))
    parts.append(f"head -c {r.choice(SIZES)} {case.data('text')}")
    return "; ".join(parts) + f"; exit {r.choice([0, 3])}"


def gathered_case(case: Case, r: random.Random) -> None:
    """Several tasks with a command each, some cancelled; the results are kept."""
    scripts = [small_script(case, r) for _ in range(r.randint(1, 6))]
    inputs = [bytes(r.choice(SIZES)) for _ in scripts]
    cancelled = {n for n in range(len(scripts)) if r.random() < 0.15}
    pause = r.choice([0, 0, 0.001, 0.01])

    async def theirs_of(text: str, data: bytes) -> Any:
        child = await asyncio.create_subprocess_exec("sh", "-c", text, stdin=-1, stdout=-1, stderr=-1)
        out, err = await child.communicate(data)
        return child.returncode, out, err

    async def ours_of(text: str, data: bytes) -> Any:
        done = await pipewright.run_async(["sh", "-c", text], input=data, capture_output=True)
        return done.returncode, done.stdout, done.stderr

    async def theirs() -> List[Any]:
        # Not cancelled: asyncio would leave the child.
        return await asyncio.gather(*map(theirs_of, scripts, inputs))

    async def ours() -> List[Any]:
        tasks = [asyncio.ensure_future(ours_of(*it)) for it in zip(scripts, inputs)]
        await asyncio.sleep(pause)
        for n in cancelled:
            tasks[n].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    expected, got = asyncio.run(theirs()), asyncio.run(ours())
    for n, pair in enumerate(zip(expected, got)):
        if n in cancelled and isinstance(pair[1], asyncio.CancelledError):
            continue
        case.compare(scripts[n], {"input": len(inputs[n])}, list(pair))


def endless_case(case: Case, r: random.Random) -> None:
    """Output that never pauses: the loop has its turns, and a cancellation acts."""
    kind = r.choice(["lines", "events"])
    turns = r.randint(2, 40)

    async def main() -> None:
        most = since = seen = 0
        last = 0
        stream: Any = getattr(pipewright, f"{kind}_async")(["yes"])

        async def read() -> None:
            nonlocal most, since, seen, last
            async for _ in stream:
                since = since + 1 if counted.count == last else 1
                last = counted.count
                most, seen = max(most, since), seen + 1
                if most > 20000:
                    return

        with Turns() as counted:
            task = asyncio.ensure_future(read())
            while counted.count < turns and not task.done():
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await stream.aclose()
        if most > ITEMS_PER_TURN:
            case.found(f"{kind}_async gives {most} items in one turn of the loop: it starves")

    asyncio.run(main())


def stepped_case(case: Case, r: random.Random) -> None:
    """Single steps with a limit each: no item is lost, none comes twice."""
    kind = r.choice(["lines", "events"])
    text = "; ".join(
        f"{r.choice(['echo a', 'seq 300', 'printf x', 'seq 20000'])} {r.choice(['', '>&2'])}; sleep {r.random() / 100}"
        for _ in range(r.randint(1, 5))
    )
    limits = [r.choice([0, 0.0005, 0.002, 0.01]) for _ in range(20)]
    whole = subprocess.run(["sh", "-c", text], stdout=-1, stderr=-1)

    async def main() -> List[Any]:
        stream: Any = getattr(pipewright, f"{kind}_async")(["sh", "-c", text])
        items: List[Any] = []
        turn = 0
        while True:
            turn += 1
            try:
                limit = limits[turn % 20] if turn < 2000 else LIMIT
                items.append(await asyncio.wait_for(stream.__anext__(), limit))
            except asyncio.TimeoutError:
                continue
            except StopAsyncIteration:
                return items

    items = asyncio.run(main())
    for name in ("stdout", "stderr"):
        expected = getattr(whole, name)
        if kind == "lines":
            ours = [str(it).encode() for it in items if it.source == name]
            case.compare(text, {"stream": name}, [expected.splitlines(), ours])
        else:
            case.compare(text, {"stream": name}, [expected, b"".join(it.value for it in items if it.kind == name)])


def closed_case(case: Case, r: random.Random) -> None:
    """`aclose`, `kill` or a cancellation while another task waits; the next run gets the same descriptor numbers."""
    kind, how = r.choice(["lines", "events"]), r.choice(["aclose", "kill", "cancel"])

    async def main() -> None:
        stream: Any = getattr(pipewright, f"{kind}_async")(["sh", "-c", "echo a; exec sleep 600"])

        async def read() -> None:
            async for _ in stream:
                pass

        task = asyncio.ensure_future(read())
        await asyncio.sleep(r.choice([0, 0.001, 0.02]))
        if how == "aclose":
            await stream.aclose()
        elif how == "kill":
            stream.kill()
        else:
            task.cancel()
        _, waiting = await asyncio.wait([task], timeout=LIMIT)
        if waiting:
            case.found(f"a task that waits in {kind}_async hangs after {how}")
            task.cancel()
        else:
            task.exception() if not task.cancelled() else None
        await stream.aclose()
        again = [it async for it in pipewright.lines_async(["sh", "-c", "sleep 0.02; echo hi"])]
        case.compare("the next run", {"after": how}, [["hi"], [str(it) for it in again]])

    async def limited() -> None:
        try:
            await asyncio.wait_for(main(), 1.5 * LIMIT)
        except asyncio.TimeoutError:
            case.found(f"the next run hangs after {how} of {kind}_async")

    asyncio.run(limited())


def kept_errors_case(case: Case, r: random.Random) -> None:
    """Exceptions of runs that are kept hold no descriptor."""
    how, many = r.choice(["check", "timeout", "cancel"]), r.randint(1, 6)
    in_loop = r.random() < 0.5
    command = ["sleep", "600"] if how != "check" else ["false"]
    options: Any = {"check": True} if how == "check" else {"timeout": 0.02} if how == "timeout" else {}
    kept: List[BaseException] = []

    async def gathered() -> List[Any]:
        tasks = [
            asyncio.ensure_future(pipewright.run_async(command, capture_output=True, **options)) for _ in range(many)
        ]
        await asyncio.sleep(0.01)
        for task in tasks if how == "cancel" else ():
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    before = descriptors()
    if in_loop or how == "cancel":
        kept += asyncio.run(gathered())
    else:
        for _ in range(many):
            try:
                pipewright.run(command, capture_output=True, **options)
            except subprocess.SubprocessError as error:
                kept.append(error)
    left = left_of(before)
    if left:
        case.found(f"{many} kept exceptions ({how}) keep {left} descriptors")


KINDS: List[Tuple[int, Callable[[Case, random.Random], None]]] = [
    (8, gathered_case),
    (3, endless_case),
    (5, stepped_case),
    (4, closed_case),
    (4, kept_errors_case),
]
