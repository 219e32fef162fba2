"""The committed gRPC code is what the compiler makes of the proto file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("router_pb2.py", "router_pb2.pyi", "router_pb2_grpc.py")


def test_generated_code_matches_the_proto(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "grpc_tools.protoc", "-Irouter/pb/v1=router/proto/v1",
        f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", f"--grpc_python_out={tmp_path}",
        "router/pb/v1/router.proto",
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    for name in GENERATED:
        made = (tmp_path / "router/pb/v1" / name).read_text()
        assert (ROOT / "router/pb/v1" / name).read_text() == made, f"generate {name} again (see docs/router.md)"
