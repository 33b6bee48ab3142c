#!/usr/bin/env python3
"""A server on a GPU page-locks memory of the host as adapters need it, not at its start; one for more GPUs than there
are loads nothing.

    start_test.py MOTLEY MODEL
"""

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


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    motley, model = sys.argv[1:]
    refuse_more_gpus_than_there_are(motley, model)
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
