package aggregator_test

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
)

// TestLogsHoldNoSecrets drives leader and helper through success and through every kind
// of failure, and then looks in what they logged for addresses, tokens, report ids,
// ciphertexts and key material, in any encoding.
func TestLogsHoldNoSecrets(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Limits.UploadBody = 64 << 10 }})
	rs := p.reports(14)
	future := p.now() + 9
	rs = append(rs, p.report(0, spoil{Context: []byte("x")}), p.report(0, spoil{AAD: func(b []byte) []byte { return append(b, 1) }}),
		p.report(0, spoil{Report: func(r *dap.Report) { r.Helper.ConfigID = 9 }}))
	late := p.report(0, spoil{Time: &future})
	p.upload(append(rs, late)...)
	p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, "", make([]byte, 100<<10))
	p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, "", []byte("rubbish"))
	p.create(p.leaderURL, dap.CollectionJobsResource, dap.MediaCollectionJobReq, "a-wrong-token-of-a-stranger", nil)
	x := &tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){
		plainStatus(500),
		func(http.ResponseWriter, *httptest.ResponseRecorder) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter, _ *httptest.ResponseRecorder) {
			w.Header().Set("Content-Type", dap.ProblemMedia)
			w.WriteHeader(401)
			w.Write([]byte(`{"type":"about:blank","detail":"` + rs[0].Metadata.ID.Base64() + `"}`))
		},
	}}
	p.tamper(x)
	for range 4 {
		p.step()
		p.clock.advance(2 * time.Hour)
	}
	q := p.query()
	q.Query.Interval.Start -= 20
	q.Query.Interval.Duration += 40
	p.collect(q)
	log := p.log.String()
	for _, want := range []string{"POST reports", "will be repeated", "status 500", "invalidMessage"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: this test looks at the wrong one", want)
		}
	}
	secrets := map[string]string{
		"peer token": peerToken, "collector token": collectorToken, "stranger's token": "a-wrong-token-of-a-stranger",
		"leader address": must(url.Parse(p.leaderURL)).Host, "helper address": must(url.Parse(p.helperURL)).Host,
		"loopback address": "127.0.0.1",
	}
	add := func(name string, b []byte) {
		secrets[name+" base64url"] = base64.RawURLEncoding.EncodeToString(b)
		secrets[name+" base64"] = base64.RawStdEncoding.EncodeToString(b)
		secrets[name+" hex"] = hex.EncodeToString(b)
		secrets[name+" raw"] = string(b)
	}
	for _, r := range append(rs, late) {
		add("report id", r.Metadata.ID[:])
		add("leader ciphertext", r.Leader.Payload[:16])
		add("helper ciphertext", r.Helper.Payload[:16])
		add("public share", r.PublicShare[:16])
	}
	key := p.task.VerifyKeys[7]
	add("verification key", key[:])
	for name, s := range secrets {
		if strings.Contains(log, s) {
			t.Errorf("the log holds a %s", name)
		}
	}
}
