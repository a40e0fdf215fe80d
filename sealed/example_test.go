package sealed_test

import (
	"fmt"

	"github.com/starling-agg/starling/sealed"
)

func Example() {
	key, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		panic(err)
	}
	ring, err := sealed.NewKeyring(key)
	if err != nil {
		panic(err)
	}
	info, aad := []byte("what this is"), []byte("what it goes with")
	enc, ciphertext, err := key.Public().Seal(info, aad, []byte("hello"))
	if err != nil {
		panic(err)
	}

	items := []sealed.Item{
		{ID: 1, Enc: enc, AAD: aad, Ciphertext: ciphertext},
		{ID: 1, Enc: enc, AAD: []byte("something else"), Ciphertext: ciphertext},
		{ID: 2, Enc: enc, AAD: aad, Ciphertext: ciphertext},
	}
	ring.OpenBatch(info, items, sealed.Serial)
	for _, it := range items {
		fmt.Printf("%q %v\n", it.Plaintext, it.Err)
	}
	// Output:
	// "hello" <nil>
	// "" sealed: cannot open: authentication
	// "" sealed: unknown key id: 2
}
