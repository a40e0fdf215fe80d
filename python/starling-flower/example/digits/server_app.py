"""The server app: FedAvgM, in Private, with accuracy on images that no site has."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvgM
from starling_flower import Private

from digits import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    run = context.run_config
    strategy = FedAvgM(
        fraction_evaluate=0.0,
        server_learning_rate=float(run["rate"]),
        server_momentum=float(run["momentum"]),
    )
    result = Private(strategy, str(run["starling"])).start(
        grid=grid,
        initial_arrays=ArrayRecord({"weights": Array(task.start())}),
        num_rounds=int(run["rounds"]),
        evaluate_fn=lambda _, arrays: MetricRecord(
            {"accuracy": task.accuracy(arrays["weights"].numpy())}
        ),
    )
    for number, metrics in sorted(result.evaluate_metrics_serverapp.items()):
        print(f"round {number}: accuracy {metrics['accuracy']:.3f}")
