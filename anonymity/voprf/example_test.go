package voprf_test

import (
	"fmt"

	"github.com/starling-agg/starling/anonymity/voprf"
)

// A device fetches a token for each round ahead, and the gateway admits one request for
// it.
func Example() {
	round := voprf.Round{Number: 490_868}
	key := voprf.GenerateKey() // of this round alone
	list := voprf.RoundKeys{First: round.Number, Keys: []voprf.PublicKey{key.PublicKey()}}

	request := voprf.NewTokenRequest(round)
	answer, err := key.Issue(request.Request())
	if err != nil {
		fmt.Println(err)
		return
	}
	public, _ := list.Of(round.Number) // of the list whose digest the manifest has
	token, err := request.Finalize(public, answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(key.Admit(round, token))
	fmt.Println(key.Admit(voprf.Round{Number: round.Number + 1}, token))
	// Output:
	// <nil>
	// voprf: the token is not of this round's key
}
