"""Python imports this first, if this folder is on PYTHONPATH: no network but loopback.

A hook that listens to what the interpreter does cannot be taken away again, and sees
every socket that Python opens, whoever opens it. Processes inherit PYTHONPATH, so it
holds in what they start as well.
"""

import ipaddress
import sys


def _is_near(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # else: a path
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    if not _is_near(host):
        # No OSError: that would be taken for a bad connection, and tried again.
        raise RuntimeError(f"the network is off: {event} to {host!r}")


sys.addaudithook(_refuse)
