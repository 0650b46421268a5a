# %% [markdown]
# # Ratings: recommendation when most entries are missing
#
# Each of 800 viewers has rated forty of 400 films. A zero in such a table does not mean a rating
# of zero, it means no rating: `missing="zeros"` leaves those entries out of the loss. The ratings
# are generated (tastes over six genres, a quality for each film, a mood for each viewer, noise),
# so that anybody can run this.

# %%
import matplotlib.pyplot as plt
import numpy as np

import factormer
from factormer.penalties import L2

rng = np.random.default_rng(0)
n_viewers, n_films, n_genres = 800, 400, 6
taste = rng.dirichlet(np.full(n_genres, 0.3), size=n_viewers)
genre = rng.dirichlet(np.full(n_genres, 0.3), size=n_films)
quality, mood = rng.normal(0, 0.5, n_films), rng.normal(0, 0.3, (n_viewers, 1))
noise = rng.normal(0, 0.5, (n_viewers, n_films))
ratings = np.clip(np.round(1.8 + 4.2 * taste @ genre.T + quality + mood + noise), 1, 5)

popular = np.exp(rng.normal(0, 0.8, n_films))
popular /= popular.sum()
seen = np.zeros(ratings.shape, dtype=bool)
for row in seen:
    row[rng.choice(n_films, size=40, replace=False, p=popular)] = True
part = rng.random(ratings.shape)
test, valid, train = seen & (part < 0.2), seen & (part >= 0.2) & (part < 0.3), seen & (part >= 0.3)
print(f"{train.sum()} ratings to learn from, {valid.sum()} to choose by, {test.sum()} held out")

# %% [markdown]
# The baseline is a serious one: the mean, how much better a film is rated than others, and how
# much kinder a viewer is, both shrunk toward zero where there are few ratings.


# %%
def rmse(predicted, among):
    """Root mean square error of the ratings in a set, predictions being cut to 1–5."""
    return np.sqrt(np.mean((predicted.clip(1, 5) - ratings)[among] ** 2))


def averages(known):
    """Mean, film and viewer."""
    mean = ratings[known].mean()
    film = np.where(known, ratings - mean, 0).sum(axis=0) / (known.sum(axis=0) + 5)
    rest = np.where(known, ratings - mean - film, 0)
    return mean + film + rest.sum(axis=1, keepdims=True) / (known.sum(axis=1, keepdims=True) + 5)


def components(known, rank, weight):
    """NMF of the known ratings, with a penalty on the size of the factors."""
    V = np.where(known, ratings, 0)
    penalty = L2(weight)
    result = factormer.factorize(
        V, rank, missing="zeros", regularize_W=penalty, regularize_H=penalty, random_state=0
    )
    return result.W @ result.H.T


# %% [markdown]
# We choose rank and penalty on ratings set aside for that.

# %%
choices = [(rank, weight) for rank in (2, 4, 6, 8) for weight in (1.0, 3.0, 6.0)]
scores = {choice: rmse(components(train, *choice), valid) for choice in choices}
best = min(scores, key=scores.get)
print(f"best: rank {best[0]}, L2({best[1]:g}), {scores[best]:.3f} on the validation ratings")

# %%
known = train | valid
found = components(known, *best)
V = np.where(known, ratings, 0)
as_zeros = factormer.factorize(V, best[0], random_state=0)  # what happens without missing="zeros"
for name, predicted in {
    "the mean alone": np.full(ratings.shape, ratings[known].mean()),
    "mean, film and viewer": averages(known),
    "NMF, zeros as ratings": as_zeros.W @ as_zeros.H.T,
    "NMF, zeros as unknown": found,
    "the truth, but for noise": 1.8 + 4.2 * taste @ genre.T + quality + mood,
}.items():
    print(f"{name:>24}: held-out RMSE {rmse(predicted, test):.3f}")

# %%
figure, (ax, right) = plt.subplots(
    1,
    2,
    num="Choice of rank and penalty, and predictions of held-out ratings",
    layout="constrained",
    figsize=(8.4, 3.1),
)
for number, weight in enumerate((1.0, 3.0, 6.0)):
    ranks = sorted({rank for rank, _ in choices})
    ax.plot(
        ranks, [scores[r, weight] for r in ranks], "o-", color=f"C{number}", label=f"L2({weight:g})"
    )
ax.axhline(
    rmse(averages(train), valid), color="gray", linestyle="--", label="mean, film and viewer"
)
ax.set_ylim(top=0.86)
ax.set_xlabel("rank")
ax.set_ylabel("RMSE on the validation ratings")
ax.legend(loc="upper right", ncols=2)
ax = right
spread = [found[test & (ratings == value)].clip(1, 5) for value in range(1, 6)]
ax.boxplot(spread, positions=range(1, 6), widths=0.6, showfliers=False, medianprops={"color": "C1"})
ax.plot([1, 5], [1, 5], color="gray", linewidth=0.8, linestyle=":")
ax.set_xlabel("held-out rating")
ax.set_ylabel("prediction")
plt.show()
