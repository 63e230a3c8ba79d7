"""The filter's form; what it refuses is tested where it binds, among the hazards."""

import struct

import pytest

from metagen.verifiers.code import seccomp


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_lands_inside(machine: str) -> None:
    code = seccomp.program(machine)
    assert code is not None
    instructions = list(struct.iter_unpack("=HBBI", code))
    assert len(instructions) < 4096  # what the kernel takes
    for place, (kind, yes, no, _) in enumerate(instructions):
        if kind & 0x07 == 0x05:
            assert place + 1 + max(yes, no) < len(instructions)
    assert instructions[-1] == (0x06, 0, 0, 0x7FFF0000)


def test_none_for_a_machine_that_it_does_not_know() -> None:
    assert seccomp.program("riscv64") is None
