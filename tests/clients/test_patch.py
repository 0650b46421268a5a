import pytest

import factormer


def test_patch_and_unpatch_swap_functions(install):
    module = install("cnmf", "cnmf", "fake_cnmf.py", "1.7.1")
    theirs = module.cNMF.factorize
    factormer.patch("cnmf")
    ours = module.cNMF.factorize
    assert ours is not theirs
    factormer.patch("cnmf")
    assert module.cNMF.factorize is ours
    factormer.unpatch("cnmf")
    assert module.cNMF.factorize is theirs
    factormer.unpatch("cnmf")
    assert module.cNMF.factorize is theirs


@pytest.mark.parametrize("client", ["cnmf", "sigprofiler"])
def test_a_client_that_is_absent_is_named(client):
    with pytest.raises(ImportError, match="is not installed; install it: pip install"):
        factormer.patch(client)


def test_an_unknown_version_is_refused(install):
    module = install("cnmf", "cnmf", "fake_cnmf.py", "2.0.0")
    theirs = module.cNMF.factorize
    with pytest.raises(ImportError, match=r"cnmf 2\.0\.0 is installed, and patch knows version 1"):
        factormer.patch("cnmf")
    assert module.cNMF.factorize is theirs


@pytest.mark.parametrize("function", [factormer.patch, factormer.unpatch])
def test_an_unknown_client_is_refused(function):
    with pytest.raises(ValueError, match="client is 'nmfk'; choose one of 'cnmf', 'sigprofiler'"):
        function("nmfk")
