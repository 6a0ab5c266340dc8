"""The loader child: compiles the programs with BCC, pins them and exits. Only this file imports bcc.

`loader` starts it, under an interpreter that need not be the daemon's: one JSON question on its standard input, one
JSON answer on its standard output. Standard library and bcc only. BCC and its compiler need 100 MB that they never give
back, which is why this is a process of its own.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any


class NoBcc(Exception):
    """This interpreter has no BCC."""


def import_bcc() -> Any:
    try:
        import bcc
    except ImportError as error:
        raise NoBcc(str(error)) from error
    except OSError as error:
        raise NoBcc(f"bcc cannot load its library: {error}") from error
    if not hasattr(bcc, "BPF"):
        raise NoBcc(f"{bcc.__file__} is the unrelated package of that name from PyPI")
    return bcc


def load(bcc: Any, question: dict[str, Any]) -> None:
    """Compile one text; maps are pinned while BCC creates them, programs into a folder that the parent renames."""
    # Kernels before 5.11 charge maps to the locked memory of whoever creates them; later ones do not ask.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.environ["BCC_KERNEL_SOURCE"] = question["kernel"]
    libbpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
    text, programs = question["unit"]
    module = bcc.BPF(text=text, cflags=question["flags"])
    for name, program_type, attach_type in programs:
        program = module.load_func(name, program_type, None, attach_type)
        if libbpf.bpf_obj_pin(program.fd, os.fsencode(Path(question["folder"], name))) < 0:
            raise OSError(ctypes.get_errno(), f"cannot pin {name}")


def answer(question: dict[str, Any]) -> dict[str, str]:
    try:
        bcc = import_bcc()
    except NoBcc as error:
        return {"no_bcc": str(error)}
    if "unit" in question:
        try:
            load(bcc, question)
        except Exception as error:  # BCC raises bare Exception; the parent has the words of the compiler
            return {"error": str(error)}
    return {"version": str(bcc.__version__)}


def die_with_parent() -> None:
    """A loader that outlives a killed daemon would pin into the folder of the next one's loader; `main` looks whether
    the daemon was killed before this.
    """
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    die_with_parent()
    # BCC and its compiler write to both streams; the answer must stand alone.
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    question = json.load(sys.stdin)
    if question.get("parent", os.getppid()) != os.getppid():
        return
    reply = answer(question)
    os.write(answer_fd, json.dumps(reply).encode())


if __name__ == "__main__":
    main()
