"""A system-call filter, as a BPF program that denies calls which no solution needs, and attacks on a kernel do.

Namespaces already hide the host; the filter narrows what a candidate may ask of the kernel at all. It
denies tracing, mounting, new namespaces, kernel modules, keys, BPF, io_uring, memory that no limit
counts (memfd, System V), and every socket that is not local to the sandbox: vsock, for one, ignores
network namespaces.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

#: name: numbers on x86_64 and aarch64, None where there is none.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "delete_module": (176, 106),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioperm": (173, None), "iopl": (172, None),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "migrate_pages": (256, 238),
    "modify_ldt": (154, None), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "move_pages": (279, 239), "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pivot_root": (155, 41),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117),
    "quotactl": (179, 60), "reboot": (169, 142), "request_key": (249, 218), "semget": (64, 190),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170),
    "shmget": (29, 194), "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116),
    "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282),
}  # fmt: skip

# Classic BPF: load a word of `seccomp_data`, compare, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_X32 = 0x40000000  # the second table of x86_64, whose numbers the list does not know
_AF_UNIX = 1


@dataclass(frozen=True)
class _Machine:
    column: int
    audit: int
    clone: int
    socket: int
    clone3: int = 435


_MACHINES = {
    "x86_64": _Machine(0, 0xC000003E, clone=56, socket=41),
    "aarch64": _Machine(1, 0xC00000B7, clone=220, socket=198),
}


def program(machine: str | None = None) -> bytes | None:
    """The filter for `machine` (as `platform.machine()` names it), None for one that it does not know.

    Denied calls fail with EPERM; sockets other than AF_UNIX too. `clone3` fails with ENOSYS, since its
    flags lie in memory that a filter cannot read: libraries then use `clone`.
    """
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    refuse = _ERRNO | errno.EPERM
    code = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, known.audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, refuse)]
    code += [(_EQUAL, 0, 1, known.clone3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for numbers in _DENIED.values():
        number = numbers[known.column]
        if number is not None:
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    code += [(_EQUAL, 0, 4, known.clone), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _NAMESPACES)]
    code += [(_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW)]
    code += [(_EQUAL, 0, 3, known.socket), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 1, 0, _AF_UNIX)]
    code += [(_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
