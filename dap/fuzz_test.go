package dap

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// One target for each decoder, so that go test -list finds them all.

func FuzzInterval(f *testing.F)                  { fuzz(f, "Interval") }
func FuzzExtensions(f *testing.F)                { fuzz(f, "Extensions") }
func FuzzHpkeCiphertext(f *testing.F)            { fuzz(f, "HpkeCiphertext") }
func FuzzHpkeConfig(f *testing.F)                { fuzz(f, "HpkeConfig") }
func FuzzHpkeConfigList(f *testing.F)            { fuzz(f, "HpkeConfigList") }
func FuzzTaskConfiguration(f *testing.F)         { fuzz(f, "TaskConfiguration") }
func FuzzCountConfig(f *testing.F)               { fuzz(f, "CountConfig") }
func FuzzSumConfig(f *testing.F)                 { fuzz(f, "SumConfig") }
func FuzzSumVecConfig(f *testing.F)              { fuzz(f, "SumVecConfig") }
func FuzzHistogramConfig(f *testing.F)           { fuzz(f, "HistogramConfig") }
func FuzzMultihotCountVecConfig(f *testing.F)    { fuzz(f, "MultihotCountVecConfig") }
func FuzzL1BoundSumConfig(f *testing.F)          { fuzz(f, "L1BoundSumConfig") }
func FuzzPineConfig(f *testing.F)                { fuzz(f, "PineConfig") }
func FuzzColumnsConfig(f *testing.F)             { fuzz(f, "ColumnsConfig") }
func FuzzL2VecConfig(f *testing.F)               { fuzz(f, "L2VecConfig") }
func FuzzReportMetadata(f *testing.F)            { fuzz(f, "ReportMetadata") }
func FuzzReport(f *testing.F)                    { fuzz(f, "Report") }
func FuzzReportShare(f *testing.F)               { fuzz(f, "ReportShare") }
func FuzzPlaintextInputShare(f *testing.F)       { fuzz(f, "PlaintextInputShare") }
func FuzzUploadRequest(f *testing.F)             { fuzz(f, "UploadRequest") }
func FuzzUploadErrors(f *testing.F)              { fuzz(f, "UploadErrors") }
func FuzzAggregationJobInitReq(f *testing.F)     { fuzz(f, "AggregationJobInitReq") }
func FuzzVerifyInit(f *testing.F)                { fuzz(f, "VerifyInit") }
func FuzzAggregationJobResp(f *testing.F)        { fuzz(f, "AggregationJobResp") }
func FuzzAggregationJobContinueReq(f *testing.F) { fuzz(f, "AggregationJobContinueReq") }
func FuzzVerifyContinue(f *testing.F)            { fuzz(f, "VerifyContinue") }
func FuzzQuery(f *testing.F)                     { fuzz(f, "Query") }
func FuzzBatchSelector(f *testing.F)             { fuzz(f, "BatchSelector") }
func FuzzCollectionJobReq(f *testing.F)          { fuzz(f, "CollectionJobReq") }
func FuzzCollectionJobResp(f *testing.F)         { fuzz(f, "CollectionJobResp") }
func FuzzAggregateShareReq(f *testing.F)         { fuzz(f, "AggregateShareReq") }
func FuzzAggregateShare(f *testing.F)            { fuzz(f, "AggregateShare") }

// Every decoder of the table has its target, and every Read function of the package is in
// the table.
func TestFuzzTargetsCoverDecoders(t *testing.T) {
	pkg := map[string]bool{}
	for _, file := range goFiles(t, ".") {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				pkg[fn.Name.Name] = true
			}
		}
	}
	inTable := map[string]bool{"VDAFConfig": true} // by its types
	for _, k := range kinds {
		inTable[k.name] = true
		if !pkg["Fuzz"+k.name] {
			t.Errorf("no target Fuzz%s", k.name)
		}
	}
	for name := range pkg {
		if read, ok := strings.CutPrefix(name, "Read"); ok && !inTable[read] {
			t.Errorf("%s is not in the table of decoders", name)
		}
	}
}
