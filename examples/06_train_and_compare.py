"""Train networks side by side: the same splits, features, seeds and training for each."""

from statistics import mean, stdev

from graphtheory.lab.bench.benchmark import Benchmark
from graphtheory.lab.bench.node_config import NodeRunConfig, load, train_nodes
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.search import best, search

# One network on one split: 34 members of a karate club, two factions.
data = load("karate", root=None, split=None, seed=0, degree=False)
trial = NodeRunConfig.of("gt", hidden=16, heads=2, layers=2, neighbors="2", lr=0.01, bias_lr=0.05)
outcome = train_nodes(trial, data, seed=0, epochs=40, patience=30)
print(outcome.fit)
print("learned bias, first layer, head 0, by hops:")
print([round(value, 3) for value in outcome.model.bucket_bias_table()[0, :3, 0].tolist()])

# Several networks, each on the same splits. With 7 test nodes a split this shows how to compare,
# not who wins: "digits" is the smallest graph on which scores say something.
models = ("gt", "gat", "gcn", "mlp")
rows = Benchmark(NodeBenchTask("karate"), models=models, seeds=4, epochs=40).run()
print(f"\n{'model':9} {'test':>6} {'+-':>6} {'parameters':>11} {'ms/epoch':>9}")
for model in models:
    runs = [row for row in rows if row.model == model]
    scores = [run.test for run in runs]
    milliseconds = 1000 * mean(run.seconds_per_epoch for run in runs)
    print(
        f"{model:9} {mean(scores):6.3f} {stdev(scores):6.3f} "
        f"{runs[0].parameters:11,} {milliseconds:9.1f}"
    )

# Options are chosen on validation alone, with one budget for every network.
found = search("karate", ("gt", "gcn"), budget=2, epochs=40)
for model, winner in best(found).items():
    print(f"\n{model}: validation {winner.val:.3f} with {winner.config.optimizer}")
