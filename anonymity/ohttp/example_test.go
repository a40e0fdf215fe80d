package ohttp_test

import (
	"fmt"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/sealed"
)

// A device asks through a relay; the gateway answers.
func Example() {
	pair, _ := sealed.Generate(1, sealed.SuiteXWing)
	gateway, _ := ohttp.NewKeyring(pair)
	config := gateway.Configs()[0]

	key, _ := config.Choose()
	request := ohttp.Request{Method: "POST", Scheme: "https", Authority: "leader.example", Path: "/reports", Content: []byte("shares")}
	message, _ := request.Append(nil)
	sealedRequest, opener, _ := ohttp.Encapsulate(config.ID, key, ohttp.Pad(message, ohttp.MinRequest))
	fmt.Println("the relay sees", len(sealedRequest), "bytes")

	e, _ := gateway.Split(sealedRequest)
	message, answer, _ := e.Open()
	got, _ := ohttp.ReadRequest(message, ohttp.MessageLimits{})
	fmt.Printf("the gateway sees %s %s: %s\n", got.Method, got.Path, got.Content)
	response := ohttp.Response{Status: 200}
	message, _ = response.Append(nil)
	sealedResponse, _ := answer.Seal(ohttp.Pad(message, ohttp.MinResponse))

	message, _ = opener.Open(sealedResponse)
	back, _ := ohttp.ReadResponse(message, ohttp.MessageLimits{})
	fmt.Println("the device sees status", back.Status)
	// Output:
	// the relay sees 5239 bytes
	// the gateway sees POST /reports: shares
	// the device sees status 200
}
