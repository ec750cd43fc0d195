"""Learn a linear score with the cross-entropy method, and compare it with the scheduler's own scores on other seeds.

    pip install 'pinnace[rl]'
    python examples/studies/learn_scores.py

Each candidate is eight weights (`linear_scores`). A generation plays candidates around the current mean, and the best quarter
of them gives the next mean and deviation. The metric is the allocated share of the GPUs at a demand of 130 %.
Source: R. Rubinstein and D. Kroese, The Cross-Entropy Method (2004).
"""

import time

import numpy as np

from pinnace.study.environment import SchedulingEnvironment, linear_scores

GENERATIONS, CANDIDATES, BEST = 12, 16, 4
TRAINING, TESTING = range(3), range(100, 110)
"""Seeds. No seed of the test is seen before it."""


def play(environment: SchedulingEnvironment, weights: np.ndarray, seed: int) -> float:
    """Return the metric at the end of an episode."""
    observation, info = environment.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        scores = np.where(info["action_mask"], linear_scores(observation, weights), -np.inf)
        observation, reward, done, _, info = environment.step(int(scores.argmax()))
        total += reward
    return total


def learn(environment: SchedulingEnvironment) -> np.ndarray:
    """Return the weights."""
    random = np.random.default_rng(0)
    mean, deviation = np.zeros(8), np.ones(8)
    for generation in range(GENERATIONS):
        candidates = random.normal(mean, deviation, (CANDIDATES, 8))
        results = [np.mean([play(environment, weights, seed) for seed in TRAINING]) for weights in candidates]
        best = candidates[np.argsort(results)[-BEST:]]
        mean, deviation = best.mean(axis=0), best.std(axis=0) + 0.1
        print(f"generation {generation + 1}: best {max(results):.2f} %, mean {np.mean(results):.2f} %", flush=True)
    return mean


def main() -> None:
    environment = SchedulingEnvironment(metric="allocated")
    began = time.process_time()
    weights = learn(environment)
    print(f"learned in {time.process_time() - began:.0f} s of CPU: {np.round(weights, 2).tolist()}")
    learned = np.array([play(environment, weights, seed) for seed in TESTING])
    for profile in ("default", "BestFit", "FGD"):
        other = SchedulingEnvironment(metric="allocated", profile=profile)
        gain = learned - [other.play_profile(seed) for seed in TESTING]
        error = gain.std(ddof=1) / len(gain) ** 0.5
        print(f"allocated: {learned.mean():.2f} %; {gain.mean():+.2f} points beside {profile} (standard error {error:.2f})")


if __name__ == "__main__":
    main()
