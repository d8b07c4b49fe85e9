"""What a command leaves alone stays away, and is the real thing for whoever asks for it."""

import subprocess
import sys

BEGIN = "import sys; from exhibit_a.commands import libraries; "
MODELS = BEGIN + "libraries.import_models(); "


def _told(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_model_is_defined_without_compiler_and_distributed_tensors() -> None:
    left_alone = "('torch._dynamo', 'torch.distributed.tensor', 'sympy')"
    loaded = _told(
        f"{MODELS}import exhibit_a as xa; subject = xa.load('sentiment'); "
        f"xa.capture(subject, 'a fine film'); print([n for n in {left_alone} if n in sys.modules])"
    )
    assert loaded == "[]"


def test_afterwards_the_compiler_and_the_distributed_part_are_the_real_ones() -> None:
    program = (
        f"{MODELS}import torch; import torch._dynamo; "
        "print(torch._dynamo.__file__.endswith('__init__.py'), torch._dynamo.is_compiling(), "
        "torch.distributed.is_available())"
    )
    assert _told(program) == "True False True"


def test_a_decorated_function_does_its_work_and_brings_the_compiler_only_then() -> None:
    program = (
        f"{BEGIN}import torch\n"
        "with libraries._uncompiled():\n"
        "    double = torch.compiler.disable(lambda x: 2 * x)\n"
        "before = 'torch._dynamo' in sys.modules\n"
        "print(before, double(21), 'torch._dynamo' in sys.modules)"
    )
    assert _told(program) == "False 42 True"


def test_whatever_else_is_asked_of_the_stand_in_is_the_compilers_own() -> None:
    program = (
        f"{BEGIN}import torch\n"
        "with libraries._uncompiled():\n"
        "    import torch._dynamo\n"
        "    asked = torch._dynamo.optimize\n"
        "print(asked is sys.modules['torch._dynamo'].optimize, type(torch._dynamo).__name__)"
    )
    assert _told(program) == "True module"
