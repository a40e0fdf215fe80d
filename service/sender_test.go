package service

import "testing"

func TestNetwork(t *testing.T) {
	for a, b := range map[string]string{
		"192.0.2.7:1": "192.0.2.255:9", "[::ffff:192.0.2.7]:1": "192.0.2.1:2", "[fe80::1%eth0]:1": "[fe80::9]:1", "@": "",
	} {
		if Network(a) != Network(b) {
			t.Errorf("%s and %s are different parts of the network", a, b)
		}
	}
	if Network("192.0.2.7:1") == Network("192.0.3.7:1") || Network("[2001:db8:1::]:1") == Network("[2001:db8:2::]:1") {
		t.Error("all the network is one part")
	}
}
