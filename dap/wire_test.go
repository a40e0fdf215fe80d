package dap

import (
	"encoding/hex"
	"testing"
)

func TestTaskConfigurationFixture(t *testing.T) {
	want := "06666f6f626172001468747470733a2f2f6578616d706c652e636f6d2f001c68747470733a2f2f616e6f746865722e6578616d706c652e636f6d2f0000000000000e10000000000000271001000000000001000000140001001000000000000f4240000000000000001c"
	b, _ := hex.DecodeString(want)
	if len(b) != 106 {
		t.Fatal(len(b))
	}
	c, err := ReadTaskConfiguration(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.Append(nil); hex.EncodeToString(got) != want {
		t.Fatal("differs")
	}
}
