package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// aggregator stands in for a leader or a helper: it hands out keys and takes any report.
func aggregator(accepted *int) *httptest.Server {
	key, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		panic(err)
	}
	keys, err := dap.HpkeConfigList{dap.NewHpkeConfig(key)}.Append(nil)
	if err != nil {
		panic(err)
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/hpke_config") {
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaHpkeConfigList))
			w.Write(keys)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		for _, err := range dap.Reports(body, nil) {
			if err == nil {
				*accepted++
			}
		}
	}))
}

func Example() {
	accepted := 0
	leader, helper := aggregator(&accepted), aggregator(&accepted)
	defer leader.Close()
	defer helper.Close()
	epsilon, _ := recipe.ParseDecimal("1")
	r, err := account.New(account.Options{
		Name: "Doctor visits", Query: recipe.Histogram{Length: 21}, MinBatch: 1000, Epsilon: epsilon,
		Leader: leader.URL, Helper: helper.URL,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := r.Append(nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	// On the device: agree to the recipe, or not.
	c, err := client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: b, MaxEpsilon: 1.5, MinBatch: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Report(context.Background(), client.Bucket(4)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(accepted, "report accepted; epsilon", c.Guarantee().Epsilon <= 1)

	_, err = client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: b, MaxEpsilon: 0.1})
	fmt.Println(strings.Split(err.Error(), ":")[1])
	// Output:
	// 1 report accepted; epsilon true
	//  recipe refused (epsilon)
}
