package aggregator_test

import (
	"fmt"
	"log"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/sealed"
)

// A task is provisioned as the bytes that all parties agreed on, and the secrets of this
// aggregator.
func ExampleTask() {
	cfg, err := dap.NewTaskConfiguration(dap.TaskConfiguration{
		TaskInfo: []byte("doctor visits"), Leader: []byte("https://leader.example/"), Helper: []byte("https://helper.example/"),
		TimePrecision: 3600, MinBatchSize: 1000, BatchMode: dap.TimeInterval, VDAFType: dap.TypePrio3Count,
	})
	if err != nil {
		log.Fatal(err)
	}
	collector, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		log.Fatal(err)
	}
	task := aggregator.Task{
		Config:        cfg.Bytes(),
		VerifyKeys:    map[uint8][32]byte{0: {}}, // both aggregators hold the same secret key
		PeerToken:     "a long random token",
		CollectorHPKE: dap.NewHpkeConfig(collector),
		Noise:         noise.Zero{}, // no recipe says how much
	}
	fmt.Println("helper:", task.Validate(dap.RoleHelper))
	fmt.Println("leader:", task.Validate(dap.RoleLeader))
	// Output:
	// helper: <nil>
	// leader: aggregator: task: the collector's token needs 16 bytes or more
}
