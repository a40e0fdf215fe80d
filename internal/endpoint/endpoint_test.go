package endpoint

import "testing"

func TestCheckPeer(t *testing.T) {
	for u, ok := range map[string]bool{
		"https://gateway.example/": true, "http://127.0.0.1:8000/": true, "http://[::1]/x": true, "http://localhost:1/": true,
		"http://gateway.example/": false, "http://192.0.2.1/": false, "ftp://127.0.0.1/": false, "https:///": false, "x": false,
		"https://a@gateway.example/": false, "https://gateway.example/?q": false, "https://gateway.example/#f": false,
		"https://gateway.example:65535/": true, "https://gateway.example:99999/": false, "https://gateway.example:0/": false, "https://gateway.example:/": false,
	} {
		if err := CheckPeer(u); (err == nil) != ok {
			t.Errorf("%s: %v", u, err)
		}
	}
}
