#!/usr/bin/env python3
"""A server on a GPU page-locks memory of the host as adapters need it, not at its start; one for more GPUs than there
are loads nothing. Snapshots of states have places in the host's memory.

    start_test.py MOTLEY MODEL
"""

import json
import re
import subprocess
import sys
import urllib.request

MOST_AT_START = 512 << 20  # the spare and what a few small adapters take


def refuse_more_gpus_than_there_are(motley, model):
    for ranks in (["--tp", "64"], ["--dp", "32", "--tp", "2"], ["--devices", "0,900"]):
        server = subprocess.run([motley, "serve", model, "--device", "cuda", "--port", "0", *ranks],
                                capture_output=True, text=True, timeout=60)
        print(server.stderr)
        if server.returncode != 2 or "this host has" not in server.stderr:
            sys.exit(f"{ranks} are to be refused")
        if "start.part" in server.stderr:
            sys.exit("nothing is loaded for what is refused")


def keep_snapshots_on_the_host(motley):
    """Four layers of Qwen3.5, of which three keep 2 MiB of state and more for a sequence."""
    call = [motley, "bench", "--shape", "qwen3.5-35b-a3b", "--layers", "4", "--device", "cuda", "--kv-memory", "1G",
            "--state-memory", "128M", "--turns", "2", "--prompt-tokens", "512", "--requests", "12", "--json",
            "--state-host-memory"]
    bench = subprocess.run([*call, "1G"], capture_output=True, text=True, timeout=100)
    print(bench.stderr, bench.stdout)
    if bench.returncode != 0:
        sys.exit("a shape with states is to run")
    told = {name: int(value) for name, value in re.findall(r" (\w+)=(\d+)(?= )", bench.stderr)}
    if not told["snapshots"] < told["host_snapshots"] or not 1 << 29 < told["state_host_bytes"] <= 1 << 30:
        sys.exit("the host is to have 1 GiB of snapshots")
    turns = [json.loads(line) for line in bench.stdout.splitlines()]
    if turns[1]["cached_tokens"] != 512 + 31 - (512 + 31) % 16:
        sys.exit("turn 2 is to go on where the answer ended")
    refused = subprocess.run([*call, "900T"], capture_output=True, text=True, timeout=100)
    print(refused.stderr.splitlines()[-1])
    if refused.returncode == 0 or "the host has left (--state-host-memory): give less" not in refused.stderr:
        sys.exit("more memory than there is is to be refused")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    motley, model = sys.argv[1:]
    refuse_more_gpus_than_there_are(motley, model)
    keep_snapshots_on_the_host(motley)
    server = subprocess.Popen(
        [motley, "serve", model, "--adapter", f"cynic={model}/adapters/cynic", "--device", "cuda",
         "--kv-memory", "1G", "--adapter-memory", "4G", "--adapter-host-memory", "8G", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://\S+", server.stdout.readline())
        if url is None:
            sys.exit(f"no server:\n{server.stderr.read()}")
        page = urllib.request.urlopen(f"{url[0]}/metrics", timeout=30).read().decode()
    finally:
        server.terminate()
        log = server.stderr.read()
        server.wait()
    told = {name: int(float(value)) for name, value in
            re.findall(r"^motley_adapter_host_memory_(\w*bytes) (\S+)$", page, re.MULTILINE)}
    for line in re.findall(r"start\..*", log):
        print(line)
    print(told)
    if told["limit_bytes"] != 8 << 30:
        sys.exit("the host's tier is to have 8 GiB")
    if not 0 < told["bytes"] <= MOST_AT_START:
        sys.exit("a start takes a spare, not all")


if __name__ == "__main__":
    main()
