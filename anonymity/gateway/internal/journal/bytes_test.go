package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"
)

// TestBytes: rounds, claims and the log's records are written as they have always been.
func TestBytes(t *testing.T) {
	frozen := func(what, want string, b []byte, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: %x hashes to %x, want %s", what, b, sum, want)
		}
	}
	at, route := time.Unix(1_700_000_000, 5), Route{"https://leader.example/", "tasks/x/reports", "a/b"}
	claims := []Claim{
		{Key: [KeySize]byte{1}, Relay: [RelaySize]byte{2}, Prints: []uint64{3, 1 << 63}, IDs: [][IDSize]byte{{4}, {5}}},
		{Key: [KeySize]byte{6}},
	}
	r := &Round{
		Number: 7, Closed: at, Passed: time.Hour, Claims: claims,
		Groups: []Group{{route, 38, 8, 9}, {Route{}, 0, 10, 11}}, Items: []Item{{Group: 1, Body: []byte("one")}, {Body: []byte("another")}},
	}
	head, err := r.head()
	frozen("round", "d92412600e1449fc861cdc3bd42f4d15f8aa89549df0beb471afd553da6982f6", head, err)
	claim, err := claims[0].Append([]byte("x"))
	frozen("claim", "808898903c9424cbb0af713902c6ea66f80720e6c91232f184e82b868956b944", claim, err)
	cut := Batch{Number: 12, Route: route, Members: []Member{{13, 14}, {15, 0}}, Pieces: [][]Ref{{{16, 17}, {18, 19}}, nil}}
	counts := CountsAt(at, map[string]uint64{"taken": 20, "few": 21})
	b, err := cut.append([]byte("x"))
	frozen("cut", "0fe15a6fd2eeaf39a92950eb8c10457bc381785725d10ba6105a1c0cc9ccf07a", b, err)
	frozen("split", "42a8c2c396070ad1635c69ed2342ea826d831effbea6582f5cb28e1089fead6a", appendSplit(22, 23), nil)
	b, err = appendSettle(24, 25, counts)
	frozen("settled", "d94dac98bd46ca940620e6825467cb237d534513cf127a2fbf7f3b171ba7c187", b, err)
	b, err = appendGivenUp(&Batch{Number: 26, Route: route, Members: cut.Members, GivenUp: true}, counts)
	frozen("given up", "c35aa7c2f1b086ea08208bf00f7303f51b863052f38b57e10a826ea80c59fd5d", b, err)
	frozen("passed", "19881adfe1641e6e35baf24b31d0023970eeb550e0f36ef2231453645b222dae", appendPassed(time.Minute), nil)
	b, err = appendTotals(time.Minute, counts, 27, []uint64{18, 26})
	frozen("totals", "b4a223242ce91fec828421bdb45546a7f2639044d3f9198f8d253e8746cd9bfd", b, err)
	opened := Opened{Key: [KeySize]byte{29}, Records: 30, Chain: [32]byte{31}}
	b, err = appendEnded(32, []Opened{opened, {}})
	frozen("ended", "53146c6a3725aff683c39b0c1601daf20efac6251d8e6d0b14cf29251df03667", b, err)
	frozen("opened", "369eba5c8266becdf2734bdf07a1eddb002cfbc9e489c9f290f453be94ab68ec", appendOpened(opened), nil)
	frozen("mark", "7174002eaede2c51d2c40efd09762a4f6f97f456c953fabfce5062ad3207a9eb", mark{[32]byte{33}, 34, 35, 36, 37}.append([]byte("x")), nil)
	b, err = appendKnown(route)
	frozen("known", "d5b6a457d53ac3939f7f09a718c335b5d9674f2e9ceef0f5e2d82d277a8841f4", b, err)
}
