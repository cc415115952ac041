"""A program that ends while its commands run: they live on, unless they were to end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any, List

import pytest
from helpers import has_ended, is_alive, skip, wait_until

#: Starts a command with a descendant, prints both process ids, and ends. As another user no cgroup can be made, so a
#: supervisor holds the tree.
PROGRAM = """
import os, signal, sys
import pipewright
how, user, options = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
pipewright.Popen, pipewright.run
if user:
    os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
def start():
    child = pipewright.Popen(["sh", "-c", "sleep 600 & echo $!; exec sleep 600"], stdout=-1, **options)
    print(child.pid, int(child.stdout.readline()), child.containment, flush=True)
    return child
if how == "local": start()
if how == "global": child = start()
if how == "cycle": child = [start()]; child.append(child)
if how == "exit": child = start(); sys.exit(3)
if how == "_exit": child = start(); os._exit(0)
if how == "killed": child = start(); os.kill(os.getpid(), signal.SIGKILL)
if how == "kill": child = start(); child.kill(); os._exit(0)
if how == "with":
    with start() as child: child.send_signal(signal.SIGKILL)
"""


def ends(how: str, user: int, options: str = "{}") -> List[Any]:
    if user and os.getuid() != 0:
        skip("root", "only root may change its user")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, how, str(user), options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd="/")
    first, second, containment = done.stdout.split()
    return [int(first), int(second), containment.decode()]


@pytest.mark.parametrize("user", [0, 65534])
@pytest.mark.parametrize("how", ["local", "global", "cycle", "exit", "_exit", "killed"])
def test_a_command_that_runs_lives_on(how: str, user: int) -> None:
    for options in ("{}", "{'start_new_session': True}"):
        *pids, _ = ends(how, user, options)
        try:
            # What would end them has begun before, and nothing shows that it is over: so a few looks.
            for _ in range(20):
                assert all(map(is_alive, pids))
                os.sched_yield()
        finally:
            for pid in filter(is_alive, pids):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("user", [0, 65534])
def test_a_command_that_was_killed_does_not(user: int) -> None:
    # The program ends before the supervisor can have seen the request.
    for how in ("kill", "with"):
        *pids, containment = ends(how, user)
        if containment in ("cgroup", "supervisor"):
            for pid in pids:
                has_ended(pid)
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("user", [0, 65534])
@pytest.mark.parametrize("how", ["global", "exit", "_exit", "killed"])
def test_a_command_that_ends_with_its_parent(how: str, user: int) -> None:
    for pid in ends(how, user, "{'kill_on_parent_exit': True}")[:2]:
        has_ended(pid)


def test_a_supervised_command_that_lived_on_leaves_no_process_of_ours() -> None:
    *pids, containment = ends("global", 65534)
    try:
        if containment != "supervisor":
            skip("supervisor", "none holds a tree here")

        def parent() -> int:
            with open(f"/proc/{pids[0]}/stat") as file:
                return int(file.read().rsplit(") ", 1)[1].split()[1])

        def is_ours() -> bool:
            try:
                with open(f"/proc/{parent()}/comm") as file:
                    return "pipewright" in file.read()
            except (FileNotFoundError, ProcessLookupError):
                # It has ended between the two looks: the next one sees another parent.
                return True

        wait_until(lambda: not is_ours(), "the end of the supervisor")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
