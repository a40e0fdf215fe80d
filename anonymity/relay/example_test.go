package relay_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/starling-agg/starling/anonymity/relay"
)

// A relay passes on bytes and a media type.
func Example() {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Printf("the gateway gets %q, cookies %v\n", b, r.Cookies())
		w.Header().Set("Content-Type", "message/ohttp-res")
		io.WriteString(w, "sealed answer")
	}))
	defer gateway.Close()

	r, err := relay.New(relay.Options{Gateway: gateway.URL + "/"})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := httptest.NewRequest("POST", "/", strings.NewReader("sealed request"))
	request.Header.Set("Content-Type", "message/ohttp-req")
	request.Header.Set("Cookie", "me=1")
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, request)
	fmt.Println("the device gets", answer.Body)
	// Output:
	// the gateway gets "sealed request", cookies []
	// the device gets sealed answer
}
