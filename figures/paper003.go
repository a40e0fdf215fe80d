package figures

import (
	"fmt"
	"strconv"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

// Lengths of vectors in the table of paper 003, which has 100 and 1,000 clients for them.
const shortVector, longVector = 10_000, 1 << 18

// tokenBytes is what a token will add to a report, by its layout (they are not built
// yet): a public extension with the token (RFC 9578: type 2, nonce 32, challenge 32, key
// id 32 and an RSA signature of 256 bytes), a count, the one-time key and its signature
// of 32 and 64 bytes, and commitments of 32 bytes to both shares; and in both shares an
// extension with a salt of 32 bytes. Each extension has a head of 4 bytes.
const tokenBytes = 4 + 1 + (2 + 3*32 + 256) + 32 + 64 + 2*32 + 2*(4+32)

// A scheme is a row of the communication table of paper 003: bytes that a client sends
// for a vector of 32-bit numbers.
type scheme struct {
	name        string
	norm, noise string
	// short and long are the paper's megabytes for its two lengths; 0 where it says
	// nothing.
	short, long float64
	// query makes ours; nil for what the paper states.
	query func(entries uint32) (recipe.Vector, error)
}

// clear is 4 bytes an entry, which the paper rounds.
const clearEntry = 4

func schemes() []scheme {
	ours := func(proof recipe.VectorProof, name string, frac uint8) scheme {
		return scheme{name: name, norm: "L2", noise: "yes", query: func(entries uint32) (recipe.Vector, error) {
			return recipe.NewVector(entries, 1, frac, proof)
		}}
	}
	return []scheme{
		{name: "Clear", norm: "none", noise: "", short: 0.04, long: 1.05},
		{name: "ACORN-robust, γ = 0.05", norm: "L∞", noise: "no", short: 0.365, long: 1.35},
		{name: "ACORN-robust, γ = 0.33", norm: "L∞", noise: "no", long: 14},
		{name: "RoFL", norm: "L∞", noise: "no", short: 2, long: 51},
		{name: "RoFL", norm: "L2", noise: "no", short: 2.9, long: 75},
		{name: "dpsa4fl", norm: "L2", noise: "yes", short: 3, long: 85},
		ours(recipe.Pine32, "Starling pine32, 15 bits", 15),
		ours(recipe.Pine40, "Starling pine40, 19 bits", 19),
		ours(recipe.Pine64, "Starling pine64, 24 bits", 24),
		ours(recipe.Pine128, "Starling pine128, 24 bits", 24),
		ours(recipe.L2Fixed16, "Starling l2fixed16", 15),
	}
}

// An upload is what one client sends for one vector, in bytes.
type upload struct {
	body  int // of DAP's upload request
	ohttp int // of the request to the relay that carries it, padded
}

// wire seals shares of the lengths that the VDAF has, and writes the report as a client
// does. Only what the shares say is left out.
func wire(q recipe.Vector) (upload, error) {
	config := q.VDAFConfig()
	bytes, err := config.Append(nil)
	if err != nil {
		return upload{}, err
	}
	v, err := dap.NewVDAF(config.Type(), bytes)
	if err != nil {
		return upload{}, err
	}
	key, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		return upload{}, err
	}
	size := v.Sizes()
	report := dap.Report{PublicShare: make([]byte, size.Public)}
	for i, n := range []int{size.LeaderInput, size.HelperInput} {
		plain, err := dap.PlaintextInputShare{Payload: make([]byte, n)}.Append(nil)
		if err != nil {
			return upload{}, err
		}
		enc, payload, err := key.Public().Seal(nil, nil, plain)
		if err != nil {
			return upload{}, err
		}
		*[]*dap.HpkeCiphertext{&report.Leader, &report.Helper}[i] = dap.HpkeCiphertext{ConfigID: key.ID(), Enc: enc, Payload: payload}
	}
	body, err := dap.AppendUploadRequest(nil, []dap.Report{report})
	if err != nil {
		return upload{}, err
	}
	message, err := (&ohttp.Request{
		Method: "POST", Scheme: "https", Authority: "leader.example", Path: "/" + dap.CreationPath(dap.TaskID{}, dap.ReportsResource),
		Header:  []ohttp.Field{{Name: "content-type", Value: dap.ContentType(dap.MediaUploadReq)}},
		Content: body,
	}).Append(nil)
	if err != nil {
		return upload{}, err
	}
	capsule, _, err := ohttp.Encapsulate(1, key.Public(), ohttp.Pad(message, ohttp.MinRequest))
	return upload{len(body), len(capsule)}, err
}

// communication is the table of paper 003, with what Starling sends.
func communication(Options, *budget) (*output, error) {
	out := &output{title: "What a client sends for a vector", rows: [][]string{
		{"scheme", "norm_bound", "server_noise", "entries", "clients", "source", "bytes", "over_clear", "over_ohttp", "token"}}}
	t := table{
		title:    out.title,
		subtitle: "Paper 003, communication table: clear to dpsa4fl as it states them, and Starling's upload for the same vectors",
		caption: "Starling's bytes are those of DAP's upload request, and of the padded request to the relay where one hides who sends. " +
			fmt.Sprintf("A token, once built, adds %d. ", tokenBytes) +
			"Bounds are proved to two servers that do not both cheat; ACORN and RoFL need one server, and γ is the part of clients that may cheat. " +
			"Numbers of dpsa4fl and l2fixed16 have 16 bits, of pine the binary places named, of the others 32 bits.",
		head:    []string{"scheme", "norm", "noise", "10,000 entries", "of clear", "by relay", "262,144 entries", "of clear", "by relay"},
		widths:  []float64{154, 40, 42, 92, 58, 76, 100, 58, 104},
		numbers: []bool{false, false, false, true, true, true, true, true, true},
		bold:    6,
	}
	for _, s := range schemes() {
		row := []string{s.name, s.norm, s.noise}
		for _, at := range []struct {
			entries uint32
			clients string
			states  float64
		}{{shortVector, "100", s.short}, {longVector, "1000", s.long}} {
			plain := clearEntry * float64(at.entries)
			record := []string{s.name, s.norm, s.noise, strconv.Itoa(int(at.entries)), at.clients}
			switch {
			case s.query != nil:
				q, err := s.query(at.entries)
				if err != nil {
					return nil, err
				}
				u, err := wire(q)
				if err != nil {
					return nil, err
				}
				row = append(row, grouped(uint64(u.body)), times(float64(u.body)/plain), grouped(uint64(u.ohttp)))
				out.rows = append(out.rows, append(record, "measured", strconv.Itoa(u.body), number(float64(u.body)/plain),
					strconv.Itoa(u.ohttp), strconv.Itoa(tokenBytes)))
			case at.states > 0:
				row = append(row, number(at.states)+" MB", times(at.states*1e6/plain), "")
				out.rows = append(out.rows, append(record, "paper", number(at.states*1e6), number(at.states*1e6/plain), "", ""))
			default:
				row = append(row, "", "", "")
			}
		}
		t.rows = append(t.rows, row)
	}
	out.picture = t.picture()
	return out, nil
}

// times writes a ratio with three digits.
func times(r float64) string { return "× " + strconv.FormatFloat(r, 'g', 3, 64) }
