"""Runs a command under a seccomp filter, as container runtimes have one: ``ptrace``, ``unshare`` and others fail."""

import ctypes
import os
import struct
import sys

# x86-64 and the generic table of arm64.
_NUMBERS = {
    "x86_64": {
        "ptrace": 101,
        "unshare": 272,
        "process_vm_readv": 310,
        "setns": 308,
        "mount": 165,
        "clone3": 435,
    },
    "aarch64": {
        "ptrace": 117,
        "unshare": 97,
        "process_vm_readv": 270,
        "setns": 268,
        "mount": 40,
        "clone3": 435,
    },
}
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2


def refuse_calls() -> None:
    """Have the calls fail in this process and all that it starts."""
    lines = [struct.pack("HBBI", _LOAD, 0, 0, 0)]
    for name, number in _NUMBERS[os.uname().machine].items():
        error = _ENOSYS if name == "clone3" else _EPERM  # of the latter, libc takes clone
        lines += [
            struct.pack("HBBI", _IF_EQUAL, 0, 1, number),
            struct.pack("HBBI", _RETURN, 0, 0, _FAIL | error),
        ]
    lines.append(struct.pack("HBBI", _RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(lines))
    program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(_PR_SET_SECCOMP, _FILTER, program) == 0, os.strerror(ctypes.get_errno())


if __name__ == "__main__":
    refuse_calls()
    os.execvp(sys.argv[1], sys.argv[1:])
