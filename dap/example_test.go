package dap_test

import (
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/sealed"
)

// A client seals a share of a report to the leader, and the leader reads and opens it.
func Example() {
	task, err := dap.NewTaskConfiguration(dap.TaskConfiguration{
		TaskInfo:      []byte("doctor visits"),
		Leader:        []byte("https://leader.example/"),
		Helper:        []byte("https://helper.example/"),
		TimePrecision: 3600,
		MinBatchSize:  100,
		BatchMode:     dap.TimeInterval,
		VDAFType:      dap.TypePrio3Count,
	})
	if err != nil {
		panic(err)
	}
	id := task.TaskID()
	leader, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		panic(err)
	}

	// The client. (Its share for the helper would be sealed likewise; the VDAF made both.)
	share, err := dap.PlaintextInputShare{Payload: []byte("half a measurement")}.Append(nil)
	if err != nil {
		panic(err)
	}
	report := dap.Report{Metadata: dap.ReportMetadata{ID: dap.ReportID{1, 2, 3}, Time: 480000}}
	aad := dap.InputShareAAD(id, task.Bytes(), &report.Metadata, report.PublicShare)
	if report.Leader, err = dap.Seal(dap.NewHpkeConfig(leader), task.Version.InputShareInfo(dap.RoleLeader), aad, share); err != nil {
		panic(err)
	}
	report.Helper = report.Leader
	body, err := dap.AppendUploadRequest(nil, []dap.Report{report})
	if err != nil {
		panic(err)
	}
	fmt.Println("POST", dap.CreationPath(dap.TaskID{}, dap.ReportsResource))
	fmt.Println("Content-Type:", dap.ContentType(dap.MediaUploadReq))

	// The leader.
	for r, err := range dap.Reports(body, nil) {
		if err != nil {
			panic(err)
		}
		aad := dap.InputShareAAD(id, task.Bytes(), &r.Metadata, r.PublicShare)
		plain, err := leader.Open(r.Leader.Enc, task.Version.InputShareInfo(dap.RoleLeader), aad, r.Leader.Payload)
		if err != nil {
			panic(err)
		}
		input, err := dap.ReadPlaintextInputShare(plain)
		if err != nil {
			panic(err)
		}
		fmt.Printf("report %v of hour %d: %s\n", r.Metadata.ID, r.Metadata.Time, input.Payload)
	}
	// Output:
	// POST tasks/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/reports
	// Content-Type: application/ppm-dap;message=upload-req
	// report redacted of hour 480000: half a measurement
}
