"""A config is read strictly: what is wrong with it is said before anything runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from factormer_lab.train.config import TrainConfig, read_table

FILES = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))
CONFIGS = [path for path in FILES if "kind" not in read_table(path)]


@pytest.fixture
def write(tmp_path):
    """Write a config file."""

    def write(text: str) -> Path:
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write


def test_config_is_what_the_file_says_and_defaults_beside(write):
    config = TrainConfig.load(
        write('name = "mine"\nbatch = 8\nlr = 2e-4\n[model]\nrank = 5\nn_points = 2\n')
    )
    assert (config.name, config.batch, config.lr) == ("mine", 8, 2e-4)
    assert (config.model.rank, config.model.n_points) == (5, 2)
    assert config.epochs == TrainConfig(name="mine").epochs


def test_defaults_are_the_papers_recipe():
    config = TrainConfig(name="paper")
    assert (config.epochs, config.batch, config.lr, config.lr_decay) == (15, 1, 1e-4, 0.9)
    assert (config.gamma, config.n_steps, config.sigma, config.copies) == (0.2, 5, 0.01, 1)
    assert (config.objective, config.schedule) == ("squared", "restarts")
    assert not config.clip
    assert not config.ema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\nlearning_rate = 1.0', r"unknown \['learning_rate'\]; options are .*'lr'"),
        ('name = "a"\n[model]\nranks = 3', r"unknown \[model\] \['ranks'\]; options are .*'rank'"),
        ('name = "a"\nlr = ', "is not valid TOML"),
        ("lr = 1e-3", "no name; add name = 'my-model'"),
        ('name = ""', "no name"),
        ('name = "a"\nbatch = 0', "batch is 0; it must be at least 1"),
        ('name = "a"\nepochs = -1', "epochs is -1; it must be at least 1"),
        ('name = "a"\nlarge_batch = -1', "large_batch is -1; it must be at least 0"),
        ('name = "a"\nseconds = 9.0', "seconds is 9.0, for which there is one cosine over the run"),
    ],
)
def test_wrong_config_is_refused_with_a_sentence(write, text, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig.load(write(text))


@pytest.mark.parametrize("line", ['objective = "cubic"', 'schedule = "linear"'])
def test_unknown_choice_is_refused(write, line):
    field = line.split()[0]  # the tests' type checker comes before the sentence that users see
    with pytest.raises((ValueError, TypeError), match=field):
        TrainConfig.load(write(f'name = "a"\n{line}'))


def test_sentences_name_the_file(write):
    path = write('name = "a"\nfoo = 1')
    with pytest.raises(ValueError, match=str(path)):
        TrainConfig.load(path)


def test_curriculum_adds_an_accelerated_iteration_every_two_epochs():
    config = TrainConfig(name="accel", n_accel=5, curriculum_epochs=2)
    expected = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5, 5]
    assert [config.n_accel_at(epoch) for epoch in range(15)] == expected


def test_curriculum_adds_an_accelerated_iteration_after_each_share_of_the_run():
    config = TrainConfig(name="accel", n_accel=3, curriculum_share=0.25)
    shares = (0.0, 0.2, 0.25, 0.49, 0.5, 0.75, 1.0)
    assert [config.n_accel_at(0, share) for share in shares] == [1, 1, 2, 2, 3, 3, 3]


def test_without_a_curriculum_all_iterations_are_accelerated():
    config = replace(TrainConfig(name="accel", n_accel=5), curriculum_epochs=0)
    assert [config.n_accel_at(epoch) for epoch in (0, 1, 14)] == [5, 5, 5]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configs_of_the_experiments_are_valid(path):
    assert TrainConfig.load(path).name
