#!/usr/bin/env python3
"""Runs an Open MPI program over all parts of a job, without ssh between the clusters.

::

    coalloc submit -n 12 --bandwidth 75Mbps -t 30 -- ./mpirun.py ./program ARGUMENT...

Every process of the job runs this. Rank 0 listens at MASTER_ADDR:MASTER_PORT and starts
``mpirun`` with the job's host file; where ``mpirun`` would call ssh to start its daemon on
another node, it is this script that is called, and has the job's own process on that node do it.
So everything stays inside what the batch systems of the clusters gave to the job. A daemon that
dies ends the job: mpirun itself would wait for one that dies at its start. Whoever reaches the port
is trusted, as with other launchers that meet at MASTER_PORT: it is for networks that
are. MPIRUN_OPTIONS may hold more options for mpirun.
"""

import contextlib
import json
import os
import select
import selectors
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

MEET_LIMIT_S = 60.0
END_LIMIT_S = 10.0
POLL_S = 0.1


def main():
    """Be what the environment says; the exit code."""
    if sys.argv[1:2] == ["--on"]:
        return call(sys.argv[2], sys.argv[3], " ".join(sys.argv[4:]))
    if len(sys.argv) < 2:
        print("usage: mpirun.py PROGRAM [ARGUMENT...], inside a job of coalloc", file=sys.stderr)
        return 2
    if os.environ["COALLOC_RANK"] == "0":
        return lead(sys.argv[1:])
    return follow()


def lead(program):
    """Rank 0: wait for the others, run mpirun, and pass its calls on to the nodes."""
    env = os.environ
    place = (env["MASTER_ADDR"], int(env["MASTER_PORT"]))
    with socket.create_server(place) as server, tempfile.TemporaryDirectory() as folder:
        nodes, others = meet(server, int(env["COALLOC_SIZE"]) - 1)
        door = f"{folder}/door"
        with socket.socket(socket.AF_UNIX) as local:
            local.bind(door)
            local.listen(64)
            agent = shlex.join([sys.executable, os.path.abspath(__file__), "--on", door])
            words = ["mpirun", "--hostfile", env["COALLOC_HOSTFILE"], "-n", env["COALLOC_SIZE"]]
            words += ["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent]
            words += ["--mca", "plm_rsh_no_tree_spawn", "1", "--leave-session-attached"]
            words += [*shlex.split(env.get("MPIRUN_OPTIONS", "")), *program]
            run = subprocess.Popen(words)
            died = serve(local, nodes, run)
            if died:
                print(f"mpirun.py: {died}", file=sys.stderr)
                end(run)
            code = run.wait() or (1 if died else 0)
        for other in others:
            with contextlib.suppress(OSError):
                other.sendall(json.dumps({"code": code}).encode() + b"\n")
            other.close()
    return code


def end(run):
    """Have mpirun end what it has started, and itself."""
    run.terminate()
    try:
        run.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        run.kill()


def meet(server, count):
    """Everybody else of the job: by node those that start processes there, and all."""
    nodes, all_here = {}, []
    server.settimeout(MEET_LIMIT_S)
    while len(all_here) < count:
        other, _ = server.accept()
        other.settimeout(MEET_LIMIT_S)
        said = json.loads(line_of(other) or "{}")
        if said.get("job") != os.environ["COALLOC_JOB_ID"]:
            other.close()
            continue
        other.settimeout(None)
        all_here.append(other)
        if said["first"]:
            nodes[said["node"]] = other
    return nodes, all_here


def serve(local, nodes, run):
    """Pass on what mpirun wants started, until it has ended, or a daemon has died; how it died."""
    here = Daemons(os.environ["COALLOC_NODE"])
    with selectors.DefaultSelector() as selector, here:
        for sock in (local, *nodes.values()):
            selector.register(sock, selectors.EVENT_READ)
        while run.poll() is None:
            ready = [key.fileobj for key, _ in selector.select(POLL_S)]
            if run.poll() is not None:
                break
            for sock in ready:
                if sock is not local:
                    said = json.loads(line_of(sock) or '{"died": "a node has gone"}')
                    return said["died"]
                take(local, nodes, here)
            if died := here.died():
                return died
    return ""


def take(local, nodes, here):
    """Start what mpirun asks for on the node that it is for."""
    caller, _ = local.accept()
    with caller:
        wanted = json.loads(line_of(caller))
        node = nodes.get(wanted["node"])
        if node is None:  # our own
            here.start(wanted["command"])
        else:
            node.sendall(json.dumps(wanted).encode() + b"\n")
        caller.sendall(b"{}\n")


class Daemons:
    """Processes that mpirun has had started on this node; each has a session folder of its own."""

    def __init__(self, node):
        self.node, self.running = node, []
        self.folder = tempfile.mkdtemp()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command):
        """Start a command."""
        env = os.environ | {"OMPI_MCA_orte_tmpdir_base": self.folder}
        self.running.append(subprocess.Popen(["sh", "-c", command], env=env))

    def died(self):
        """Bad end of one of them, in words; empty: none."""
        codes = [process.poll() for process in self.running]
        bad = next((code for code in codes if code), None)
        return "" if bad is None else f"a daemon of mpirun on {self.node} ended with {bad}"


def call(door, node, command):
    """Stand-in for ssh under mpirun: have a command run on a node."""
    with socket.socket(socket.AF_UNIX) as local:
        local.connect(door)
        local.sendall(json.dumps({"node": node, "command": command}).encode() + b"\n")
        return 0 if line_of(local) else 1


def follow():
    """Every other rank: start what it is told to, until rank 0 says that all is over."""
    env = os.environ
    end = time.monotonic() + MEET_LIMIT_S
    while True:
        try:
            leader = socket.create_connection((env["MASTER_ADDR"], int(env["MASTER_PORT"])), 10)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    leader.settimeout(None)
    first = env["LOCAL_RANK"] == "0"
    hello = {"job": env["COALLOC_JOB_ID"], "node": env["COALLOC_NODE"], "first": first}
    leader.sendall(json.dumps(hello).encode() + b"\n")
    is_told = False
    with Daemons(env["COALLOC_NODE"]) as here:
        while True:
            if select.select([leader], [], [], POLL_S)[0]:
                said = json.loads(line_of(leader) or '{"code": 1}')
                if "code" in said:
                    return said["code"]
                here.start(said["command"])
            if not is_told and (died := here.died()):
                is_told = True
                leader.sendall(json.dumps({"died": died}).encode() + b"\n")


def line_of(sock):
    """One line, byte by byte, so that nothing of the next is taken."""
    line = b""
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            return ""
        line += byte
    return line.decode()


if __name__ == "__main__":
    sys.exit(main())
