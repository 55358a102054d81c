package jobserver

import (
	"net/http"
	"strings"
	"testing"
)

func TestWhoIsTakenForLocal(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8000": true, "LocalHost.": true, "a.localhost:1": true, "127.0.0.1": true,
		"127.0.0.1:8000": true, "127.9.9.9": true, "[::1]:8000": true, "[::1]": true,
		"::1": true, "[::ffff:127.0.0.1]:80": true,
		"": false, ":8000": false, "example.org": false, "example.org:8000": false, "localhost.example.org": false,
		"10.0.0.1:8000": false, "notlocalhost": false, "127.0.0.1.nip.io": false,
		"0.0.0.0:8000": false, "[::]:8000": false,
	} {
		if got := isLocal(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestWebPagesAreKeptAway(t *testing.T) {
	for _, c := range []struct {
		method, host string
		header       []string
		want         string
	}{
		{http.MethodPost, "localhost:8000", nil, ""},
		{http.MethodGet, "127.0.0.1:8000", []string{"Sec-Fetch-Site", "same-origin"}, ""},
		{http.MethodPost, "localhost:8000",
			[]string{"Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8000"}, ""},
		{http.MethodPost, "localhost:8000", []string{"Sec-Fetch-Site", "cross-site"},
			"a browser sends this for another site"},
		{http.MethodDelete, "localhost:8000", []string{"Origin", "http://evil.example"},
			"a browser sends this for another site"},
		{http.MethodGet, "evil.example:8000", nil,
			`asked as "evil.example:8000" and answers only as localhost or 127.0.0.1`},
		{http.MethodPost, "evil.example:8000",
			[]string{"Sec-Fetch-Site", "same-origin", "Origin", "http://evil.example:8000"}, "--jobs-access"},
	} {
		r := request(c.header...)
		r.Method, r.Host = c.method, c.host
		err := fromHere(r)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s at %s with %q: %v", c.method, c.host, c.header, err)
		}
	}
}

func TestAddressesOfThisMachine(t *testing.T) {
	for address, want := range map[string]bool{
		":8000": false, "127.0.0.1:8000": true, "localhost:0": true, "[::1]:8000": true, "0.0.0.0:8000": false,
		"[::]:8000": false, "10.1.1.1:8000": false, "example.org:8000": false, "8000": false,
	} {
		if got := Local(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}
