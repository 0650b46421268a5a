"""Articles that nobody wrote: words drawn from known topics."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from factormer.datasets.example import Example

_WORDS = {
    "cooking": "salt oven butter garlic onion pepper sauce flour dough boil fry taste recipe spoon "
    "cheese tomato lemon bake simmer herbs rice soup knife sugar",
    "astronomy": "star planet orbit telescope galaxy light moon comet nebula mass radiation "
    "spectrum eclipse asteroid dwarf gravity dust probe sky lens crater sun rocket observatory",
    "football": "goal match referee penalty striker coach league cup defender pass keeper season "
    "whistle stadium fans squad injury transfer corner tackle header score midfield draw",
    "money": "bank interest loan market shares profit tax price inflation debt budget trade "
    "currency bond investor growth fund deposit broker salary credit payment revenue risk",
    "gardening": "seed soil leaf root water bloom prune compost weed hedge tulip rose bulb lawn "
    "shade frost pot greenhouse harvest spade mulch vine sun slug",
}
_COMMON = (
    "year time people day good new old long little first last great small own right high early "
    "week month place home hand part way work life world case point group number fact"
)


def make_documents(n_documents: int = 1000, *, random_state: int = 0) -> Example:
    """Draw word counts of documents that mix five topics, among them cooking and astronomy.

    Each document has one or two topics of some weight, and words that every topic uses. Some words
    belong to two topics (sun, soil, water). Counts are Poisson.

    Parameters
    ----------
    n_documents : int
        Number of documents.
    random_state : int
        Seed of all that is drawn.

    Returns
    -------
    Example
        `V` (n_documents, words), a sparse array of counts by rows; `W` expected words of each topic
        in a document; `H` topics, of which each sums to one; `columns` words.
    """
    if n_documents < 1:
        raise ValueError(f"n_documents is {n_documents}; it must be 1 or more")
    rng = np.random.default_rng(random_state)
    lists = {topic: words.split() for topic, words in _WORDS.items()}
    words = list(dict.fromkeys([w for own in lists.values() for w in own] + _COMMON.split()))
    place = {word: k for k, word in enumerate(words)}
    H = np.zeros((len(words), len(lists)))
    for k, own in enumerate(lists.values()):
        chances = 1 / (2 + np.arange(len(own)))  # some words are frequent, most are rare
        H[[place[w] for w in own], k] = 0.7 * chances / chances.sum()
        common = rng.dirichlet(np.full(len(_COMMON.split()), 2.0))
        H[[place[w] for w in _COMMON.split()], k] += 0.3 * common
    lengths = rng.lognormal(np.log(120), 0.4, size=(n_documents, 1))
    W = rng.dirichlet(np.full(len(lists), 0.12), size=n_documents) * lengths
    V = scipy.sparse.csr_array(rng.poisson(W @ H.T).astype(np.float64))
    rows = np.array([f"document {i + 1}" for i in range(n_documents)])
    return Example(V, W, H, rows, np.array(words), np.array(list(lists)))
