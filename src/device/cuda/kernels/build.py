"""Compiles kernels.cu to kernels.ptx, for every GPU since Maxwell and every driver since CUDA 12.0.

    pip install 'nvidia-cuda-nvrtc-cu12>=12.0,<12.1'
    python src/device/cuda/kernels/build.py PATH/TO/libnvrtc.so.12

Run it after a change of the code of kernels.cu. The result is committed, so that a build of the
library needs no CUDA.
"""

import ctypes
import pathlib
import sys

here = pathlib.Path(__file__).parent
nvrtc = ctypes.CDLL(sys.argv[1])


def check(code: int) -> None:
    if code:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise SystemExit(nvrtc.nvrtcGetErrorString(code).decode())


program = ctypes.c_void_p()
source = (here / "kernels.cu").read_bytes()
check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None))
options = [b"--gpu-architecture=compute_50"]
code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
size = ctypes.c_size_t()
check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
log = ctypes.create_string_buffer(size.value)
check(nvrtc.nvrtcGetProgramLog(program, log))
sys.stderr.write(log.value.decode())
check(code)
check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
ptx = ctypes.create_string_buffer(size.value)
check(nvrtc.nvrtcGetPTX(program, ptx))
lines = ptx.value.decode().splitlines()
# The text before is the compiler's licence notice.
start = next(at for at, line in enumerate(lines) if line.startswith(".version"))
# Without the constants of NVRTC's headers, which no kernel uses.
lines = [line.rstrip() for line in lines[start:] if "_INTERNAL_" not in line]
text = "\n".join(lines).rstrip()
(here / "kernels.ptx").write_text(f"// Made of kernels.cu by build.py: do not edit.\n{text}\n")
