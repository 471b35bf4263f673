"""A line between two hosts: what goes in at one end comes out of the other after a while.

line.py NETNS MILLIS ADDRESS ADDRESS: its one end is here, with the first address, the other in the
namespace NETNS, with the second. Runs until its input ends.
"""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000


def end(address, peer):
    """Opens an interface in the namespace that this thread is in."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"line0", IFF_TUN | IFF_NO_PI))
    for line in (f"addr add {address} peer {peer} dev line0", "link set line0 up"):
        subprocess.run(["ip", *line.split()], check=True)
    return tun


def main():
    netns, millis, here, there = sys.argv[1:]
    near = end(here, there)
    with open(netns) as other:
        if ctypes.CDLL(None, use_errno=True).setns(other.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    far = end(there, here)
    across = {near: far, far: near}
    waiting, number = [], 0
    print("up", flush=True)
    while True:
        rest = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([near, far, sys.stdin], [], [], rest)
        now = time.monotonic()
        for source in ready:
            if source is sys.stdin:
                return
            try:
                while True:
                    packet = os.read(source, 2048)
                    number += 1
                    due = now + int(millis) / 1000
                    heapq.heappush(waiting, (due, number, across[source], packet))
            except BlockingIOError:
                pass
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, sink, packet = heapq.heappop(waiting)
            os.write(sink, packet)


main()
