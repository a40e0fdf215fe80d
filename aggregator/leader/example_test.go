package leader_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/sealed"
)

// A leader serves its keys, and works in the background until its context ends.
func Example() {
	dir, err := os.MkdirTemp("", "leader")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	files, err := aggregator.Dir(filepath.Join(dir, "data"))
	if err != nil {
		log.Fatal(err)
	}
	record, err := aggregator.Dir(filepath.Join(dir, "record"))
	if err != nil {
		log.Fatal(err)
	}
	key, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		log.Fatal(err)
	}
	keys, err := sealed.NewKeyring(key)
	if err != nil {
		log.Fatal(err)
	}
	cfg, err := dap.NewTaskConfiguration(dap.TaskConfiguration{
		TaskInfo: []byte("doctor visits"), Leader: []byte("https://leader.example/dap/"), Helper: []byte("https://helper.example/"),
		TimePrecision: 3600, MinBatchSize: 1000, BatchMode: dap.TimeInterval, VDAFType: dap.TypePrio3Count,
	})
	if err != nil {
		log.Fatal(err)
	}
	l, err := leader.New(context.Background(), leader.Options{Options: aggregator.Options{
		Base: "https://leader.example/dap/", FS: files, Record: record, Keys: keys,
		Tasks: []aggregator.Task{{
			Config: cfg.Bytes(), VerifyKeys: map[uint8][32]byte{0: {}}, PeerToken: "a long random token",
			CollectorToken: "another long random token", CollectorHPKE: dap.NewHpkeConfig(key), Noise: noise.Zero{},
		}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()

	w := httptest.NewRecorder()
	l.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/dap/hpke_config", http.NoBody))
	list, err := dap.ReadHpkeConfigList(w.Body.Bytes())
	fmt.Println(w.Code, len(list), err)

	stop()
	fmt.Println(<-done, l.Close())
	// Output:
	// 200 1 <nil>
	// <nil> <nil>
}
