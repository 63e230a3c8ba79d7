"""A start of an inside: a server that forks for each program, and confines the copy before it reads its program.

It is joined with `candidate.py` or `judge.py`, and runs in a sandbox of its own. It reads requests from its socket and
writes nothing there. It never reads a program's channel. A step that fails ends the copy.

    server ── fork ──▶ first process of the new namespaces ── fork ──▶ the program
                       waits, and reports the program's status

The server keeps the rights that new namespaces take. The first process gives them up once it has made these. The
program has another user's rights: root's server takes a user id for each, another's server makes a user namespace.
"""

from __future__ import annotations

import sys

from metagen.verifiers.code.inside.values import (
    TYPE_CHECKING,
    parse,
)

#: A program finds no other modules than these, as in an interpreter that has just started.
MODULES = frozenset(sys.modules)

import _signal  # type: ignore[import-not-found]  # noqa: E402  has no stub
import _socket  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import struct  # noqa: E402

if TYPE_CHECKING:
    from typing import Any

    from metagen.verifiers.code.inside.candidate import serve

# From sched.h, mount.h, prctl.h and capability.h of Linux.
NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PROCESSES, NEW_NETWORK = (
    0x20000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
NO_SETUID, NO_DEVICES, WHOLE_TREE, PRIVATE, DETACH = 2, 4, 1 << 14, 1 << 18, 2
SET_SECCOMP, FILTER, NO_NEW_RIGHTS, AMBIENT, CLEAR_ALL = 22, 2, 38, 47, 4
CAPABILITIES = 0x20080522
LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: Any) -> None:
    """Call a function of the C library; OSError if it fails."""
    if getattr(LIBC, name)(*args) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}{args!r}: {os.strerror(error)}")


def control_process(option: int, *args: Any) -> None:
    """`prctl`."""
    call("prctl", option, *[ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*args, 0, 0, 0, 0)[:4]])


def make_world(request: dict[str, Any]) -> None:
    """New namespaces, but that of processes, which is new already; and an empty `/tmp` in memory."""
    call("unshare", NEW_MOUNTS | NEW_NETWORK | NEW_IPC)
    call("mount", None, b"/", None, ctypes.c_ulong(WHOLE_TREE | PRIVATE), None)
    own = os.open("/tmp/proc/self", os.O_RDONLY) if request["user"] is None else None
    os.chdir("/")
    call("umount2", b"/tmp", DETACH)
    options = f"size={request['disk']},mode=1777".encode()
    call("mount", b"tmpfs", b"/tmp", b"tmpfs", ctypes.c_ulong(NO_SETUID | NO_DEVICES), options)
    os.chdir("/tmp")
    if own is not None:
        make_user(own)


def make_user(own: int) -> None:
    """A new user namespace with this one user; own: of this process, its directory in a `/proc`."""
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_USER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        file = os.open(name, os.O_WRONLY, dir_fd=own)
        os.write(file, text.encode())
        os.close(file)
    os.close(own)


def give_up_rights() -> None:
    """No capability is left, and no program that is started can bring one."""
    control_process(NO_NEW_RIGHTS, 1)
    control_process(AMBIENT, CLEAR_ALL)
    header, none = struct.pack("=Ii", CAPABILITIES, 0), bytes(24)
    call("capset", header, none)
    left = ctypes.create_string_buffer(b"\xff" * 24, 24)
    call("capget", header, left)
    if left.raw != none:
        raise OSError(f"capabilities are left: {left.raw.hex()}")


def confine(request: dict[str, Any], calls: bytes) -> None:
    """Limits, another user, no rights, the filter of system calls."""
    os.setsid()  # else a signal to its process group would reach the server
    for name, limits in request["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), tuple(limits))
    if (user := request["user"]) is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        if {*os.getresuid(), *os.getresgid()} != {user}:
            raise OSError("the user has not changed")
    give_up_rights()
    code = ctypes.create_string_buffer(calls, len(calls))
    control_process(SET_SECCOMP, FILTER, struct.pack("@HP", len(calls) // 8, ctypes.addressof(code)))


def watch(program: int, report: Any) -> None:
    """Wait as the first process of a namespace, all of which ends with it. Never returns."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # so that the kernel lets none through from the program
    give_up_rights()
    while True:
        child, status = os.wait()
        if child == program:
            report.send(str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)


def begin(request: dict[str, Any], fds: list[int], calls: bytes) -> int:
    """As the first process of a namespace, start the program. Returns in this: the number of its channel."""
    try:
        return start(request, fds, calls)
    except BaseException as error:  # noqa: BLE001  whatever it is, a copy must not go on as a server
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def start(request: dict[str, Any], fds: list[int], calls: bytes) -> int:
    """The same; raises for a step that fails."""
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    channel, output, errors, number, *groups = fds
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for group in groups:
        os.write(group, b"0")
    make_world(request)
    for fd in (output, errors, *groups):
        os.close(fd)
    report = _socket.socket(fileno=number)
    if program := os.fork():
        os.close(channel)
        for fd in (1, 2):
            os.dup2(0, fd)
        watch(program, report)
    report.close()
    confine(request, calls)
    for name in set(sys.modules) - MODULES:
        del sys.modules[name]
    return channel


def receive(control: Any) -> tuple[Any, list[int]]:
    """The next request, and the file descriptors that come with it; None when the other end has closed."""
    data, ancillary, *_ = control.recvmsg(65536, _socket.CMSG_SPACE(4 * 16))
    fds: list[int] = []
    for _, _, numbers in ancillary:
        fds += struct.unpack(f"={len(numbers) // 4}i", numbers)
    return parse(data.decode()) if data else None, fds


def fork(own: int, errors: int) -> int | None:
    """A copy that is the first process of a new namespace: 0 in it, else its number; None if there is none.

    own: of this process. errors: a file descriptor that is told why.
    """
    call("unshare", NEW_PROCESSES)
    try:
        copy = os.fork()
    except OSError as error:  # too many processes, or no memory: for now
        os.write(errors, f"{error}\n".encode())
        copy = None
    if copy != 0:
        call("setns", own, NEW_PROCESSES)
    return copy


def tell(copy: int, number: int) -> None:
    """Hand out what ends a copy, over the socket `number`."""
    try:
        process = os.pidfd_open(copy)
    except ProcessLookupError:  # it has failed already
        return
    report = _socket.socket(fileno=os.dup(number))
    report.sendmsg([b"pidfd"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("=i", process))])
    report.close()
    os.close(process)


def fork_for_each(number: int) -> int:
    """Fork for each request over socket `number`. Returns in the copies: the number of the program's channel."""
    control = _socket.socket(fileno=number)
    calls, own = control.recv(65536), os.pidfd_open(os.getpid())
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # so that nobody needs to wait for the copies
    gc.freeze()
    while True:
        request, fds = receive(control)
        if request is None:
            break
        copy = fork(own, fds[2])
        if copy == 0:
            control.close()
            os.close(own)
            return begin(request, fds, calls)
        if copy is not None:
            tell(copy, fds[3])
        for fd in fds:
            os.close(fd)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            os._exit(0)


if __name__ == "__main__":
    serve(fork_for_each(int(sys.argv[1])))
