"""The shipped networks: one safetensors file each, with its card in the header.

A file holds tensors and JSON text; loading one never executes anything from it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from factormer.data.files import parsed, write
from factormer.data.warn import warn
from factormer.nn.anyfactormer import AnyFactormer, AnyFactormerConfig
from factormer.nn.anyrank import AnyRankConfig, AnyRankNetwork
from factormer.nn.factormer import ModelConfig, NFactormer
from factormer.nn.rank import RankConfig, RankNetwork
from factormer.nn.refining import Network, RefiningFactormer, build

FORMAT = "factormer-1"
RELEASED = "FACTORMER_RELEASED"  # the variable that names a folder of files of former versions
_RETIRED = {"init-r10-literal": "init-r10-paper"}  # and which network does what it did
_PLANNED = {"accel-r10": 1872}  # steps that a released card does not have (lab/log)
Model = TypeVar("Model", bound=torch.nn.Module)
Config = ModelConfig | AnyRankConfig | RankConfig | AnyFactormerConfig
_KINDS = {  # a card without a kind: ModelConfig
    "any-rank": AnyRankConfig,
    "rank": RankConfig,
    "any-factormer": AnyFactormerConfig,
}

_MAKES = {
    ModelConfig: build,
    AnyRankConfig: AnyRankNetwork,
    RankConfig: RankNetwork,
    AnyFactormerConfig: AnyFactormer,
}
_IS = {
    AnyRankNetwork: "is an any-rank accelerator",
    AnyFactormer: "is a start for any rank",
    RankNetwork: "chooses a rank",
}


@dataclass(frozen=True)
class Card:
    """The card of a network: config, training data, cost, and performance."""

    name: str
    version: str
    config: Config
    training: Mapping[str, Any]
    figures: Mapping[str, Any]

    @property
    def use(self) -> str:
        """Return the keyword for the name: `init`, `accelerator`, or `model` of `select_rank`."""
        if isinstance(self.config, RankConfig):
            return "model"
        if isinstance(self.config, AnyRankConfig):
            return "accelerator"
        if isinstance(self.config, AnyFactormerConfig):
            return "init"
        return "init" if self.config.n_points == 1 else "accelerator"

    @property
    def ranks(self) -> str:
        """Which ranks the network serves."""
        return f"rank {self.config.rank}" if isinstance(self.config, ModelConfig) else "any rank"

    @property
    def course(self) -> dict[str, Any]:
        """The training; a run that was stopped says so in words."""
        return _in_words(self.training)

    def __str__(self) -> str:
        title = f"{self.name} (version {self.version}): {self.use}, {self.ranks}"
        tables = {"training": self.course, "figures": self.figures}
        return "\n".join([title, *_outline(tables, indent=2)])


def _in_words(training: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the flag of an unfinished run by words; likewise in the run that it began from."""
    words = dict(training)
    planned = words.pop("planned steps", _PLANNED.get(_name_of(words)))
    if not words.pop("finished", True):
        of = "" if planned is None else f" of {planned}"
        words["steps"] = f"{words['steps']}{of}: this stage of the training was stopped early"
    if isinstance(words.get("begun from"), Mapping):
        words["begun from"] = _in_words(words["begun from"])
    return words


def _name_of(training: Mapping[str, Any]) -> str:
    return str(training.get("options", {}).get("name"))


def _outline(table: Mapping[str, Any], indent: int) -> list[str]:
    """A nested table as indented lines; options that are off, empty or zero are left out."""
    lines = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += [" " * indent + key, *_outline(value, indent + 2)]
        elif value is False or value:
            lines.append(f"{' ' * indent}{key}: {value}")
    return lines


def models() -> dict[str, Card]:
    """Name and card of every shipped network."""
    return {path.stem: read_card(path) for path in sorted(_folder().glob("*.safetensors"))}


def load_model(
    name: str | Path, *, version: str | int | None = None, folder: str | Path | None = None
) -> Network | AnyRankNetwork | RankNetwork | AnyFactormer:
    """Load a shipped network by name, or one of your own by the path of its .safetensors file.

    With `version`, that version of a released network, from NAME-VERSION.safetensors in `folder`,
    or in the folder that FACTORMER_RELEASED names, unless it is the version that ships. The
    repository has the former versions in `lab/released`.
    """
    path = find_model(name) if version is None else find_version(str(name), str(version), folder)
    config = read_card(path).config
    return _filled(_MAKES[type(config)], config, path)


def load_factormer(name: str | Path) -> Network:
    """Load a network of the paper's kind, which serves one rank."""
    return _loaded(name, (NFactormer, RefiningFactormer), "a network that serves a rank")


def load_any_factormer(name: str | Path) -> AnyFactormer:
    """Load a start that serves every rank."""
    return _loaded(name, (AnyFactormer,), "a start for any rank: 'any-rank-init', or one of yours")


def load_any_rank(name: str | Path) -> AnyRankNetwork:
    """Load an accelerator that serves every rank."""
    return _loaded(name, (AnyRankNetwork,), "an any-rank accelerator")


def load_rank(name: str | Path) -> RankNetwork:
    """Load a network that chooses the rank."""
    return _loaded(name, (RankNetwork,), "one that chooses a rank: 'rank', or one of yours")


def _loaded(name: str | Path, kinds: tuple[type[Model], ...], wanted: str) -> Model:
    """A network of one of these kinds; of another, a sentence that says what it is."""
    model = load_model(name)
    if isinstance(model, kinds):
        return model
    if isinstance(model, NFactormer | RefiningFactormer):
        raise ValueError(f"{name} serves only rank {model.config.rank}; choose {wanted}")
    raise ValueError(f"{name} {_IS[type(model)]}; choose {wanted}")


def _filled(make: Callable[[Any], Model], config: Any, path: Path) -> Model:
    """A network with the weights in a file, ready for use."""
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    bad = [key for key, t in tensors.items() if not (t.is_floating_point() and t.isfinite().all())]
    if bad:
        raise ValueError(
            f"{path} has weights that are NaN, infinite or not floating, in {bad[0]}; copy "
            "or train it again"
        )
    try:
        if not 0 < _depth(config) <= len(tensors):
            raise ValueError(f"it has {len(tensors)} tensors for {_depth(config)} layers")
        with torch.device("meta"):  # which takes no memory, however large the sizes in the card
            sizes = {key: tensor.shape for key, tensor in make(config).state_dict().items()}
        wrong = [key for key in sizes if key in tensors and tensors[key].shape != sizes[key]]
        if wrong:
            raise ValueError(f"size mismatch for {wrong[0]}")
        with torch.random.fork_rng(devices=[]):  # fresh weights come from the global generator
            model = make(config)
        model.load_state_dict(tensors)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not fit the config in its own card: {error}") from error
    return model.requires_grad_(False).eval()


def _depth(config: Config) -> int:
    if isinstance(config, AnyFactormerConfig):  # whose layers share their weights
        return 1
    return config.n_pairs if isinstance(config, ModelConfig) else config.n_layers


def find_model(name: str | Path) -> Path:
    """The file of a shipped network, or the path itself if it is that of a .safetensors file."""
    path = Path(name)
    if path.suffix == ".safetensors":
        return path
    if (now := present_name(str(name))) != str(name):
        warn(
            f"{str(name)!r} has retired, and its name will be refused one day: this is {now!r}, "
            f"which is better. Say so, or load the old one by load_model({str(name)!r}, "
            "version=1, folder=…)",
            FutureWarning,
        )
    path = _folder() / f"{now}.safetensors"
    if not path.is_file():
        known = ", ".join(p.stem for p in sorted(_folder().glob("*.safetensors"))) or "none"
        raise ValueError(
            f"there is no network {str(name)!r}; the shipped ones are: {known}; "
            "for one of your own, give the path of its .safetensors file"
        )
    return path


def find_version(name: str, version: str, folder: str | Path | None = None) -> Path:
    """The file of a version of a released network: the one that ships, or one in a folder."""
    shipped = _folder() / f"{name}.safetensors"
    if shipped.is_file() and read_card(shipped).version == version:
        return shipped
    folder = folder or os.environ.get(RELEASED)
    if folder is None:
        raise ValueError(
            f"{name} of version {version} does not ship with the package: pass folder=, or set "
            f"{RELEASED}, to a folder with {name}-{version}.safetensors; the repository has the "
            "former versions in lab/released"
        )
    path = Path(folder) / f"{name}-{version}.safetensors"
    card = read_card(path)
    if (card.name, card.version) != (name, version):
        raise ValueError(
            f"{path} holds version {card.version} of {card.name}, and not version {version} of "
            f"{name}: name it after what it holds"
        )
    return path


def present_name(name: str) -> str:
    """The name that took the place of a retired one; any other name as it is."""
    return _RETIRED.get(name, name)


def save_model(model: torch.nn.Module, card: Card, path: Path) -> None:
    """Write weights and card, completely or not at all."""
    header = {"format": FORMAT, "card": json.dumps(asdict(card), default=dict)}
    tensors = {k: v.detach().cpu().float().contiguous() for k, v in model.state_dict().items()}
    write(path, save(tensors, metadata=header))


def read_card(path: Path) -> Card:
    """Read the card in a weights file, or raise an error that says what is wrong with the file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no weights file {path}; check it, or train that network first"
        )
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}); copy or train it again"
        ) from error
    if header.get("format") != FORMAT:
        raise ValueError(
            f"{path} is a safetensors file, but not one of this program: its format is "
            f"{header.get('format')!r} and {FORMAT!r} is expected"
        )
    try:
        fields = parsed(header["card"])
        config = fields["config"]
        cls = _KINDS.get(config.get("kind"), ModelConfig)
        return Card(**(fields | {"config": cls(**config)}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the card in {path} cannot be read: {error}") from error


def checksum(path: Path) -> str:
    """SHA-256 of a weights file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _folder() -> Path:
    return Path(str(resources.files("factormer"))) / "weights"
