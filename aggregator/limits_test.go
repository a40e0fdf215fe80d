package aggregator_test

import (
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
)

// A task whose reports are megabytes raises the largest upload; limits that would refuse
// all of its reports are refused.
func TestLimitsForTasks(t *testing.T) {
	task := func(c dap.VDAFConfig) aggregator.Task {
		return aggregator.Task{Config: must(dap.NewTaskConfiguration(dap.TaskConfiguration{
			TaskInfo: []byte("x"), Leader: []byte("https://l.example/"), Helper: []byte("https://h.example/"), TimePrecision: 3600, MinBatchSize: 1,
			BatchMode: dap.TimeInterval, VDAFType: c.Type(), VDAFConfig: must(c.Append(nil)),
		})).Bytes()}
	}
	const small = 8 << 20
	million := dap.PineConfig{Field: dap.TypePine64, Dimension: 1 << 20, FracBits: 24, Bound: 1 << 24}
	for _, c := range []struct {
		config      dap.VDAFConfig
		given       int64
		least, most int64 // of UploadBody; 0 is an error
	}{
		{dap.CountConfig{}, 0, small, small},
		{dap.CountConfig{}, 1 << 20, 1 << 20, 1 << 20},
		{million, 0, 8<<20 + 1, 9 << 20},
		{million, small, 0, 0},
		{million, 10 << 20, 10 << 20, 10 << 20},
		{dap.PineConfig{Field: dap.TypePine128, Dimension: 1 << 21, FracBits: 24, Bound: 1 << 24}, 0, 0, 0},
	} {
		tasks := []aggregator.Task{task(dap.CountConfig{}), task(c.config), {Config: []byte("no task")}}
		l, err := aggregator.Limits{UploadBody: c.given}.ForTasks(tasks)
		if (err != nil) != (c.most == 0) {
			t.Errorf("%+v with %d: %v", c.config, c.given, err)
		}
		if err == nil && (l.UploadBody < c.least || l.UploadBody > c.most || l.Validate() != nil) {
			t.Errorf("%+v with %d: %d bytes, %v", c.config, c.given, l.UploadBody, l.Validate())
		}
	}
}
