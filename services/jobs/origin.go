package jobserver

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// fromHere keeps web pages away from a server that trusts all programs of this machine: a browser
// on it would send their requests. It refuses those that a browser says are from another site, and
// those that came by a name that is not this machine's own, as a page's name can be made to lead
// here. The error names the remedy.
func fromHere(r *http.Request) error {
	if !isLocal(r.Host) {
		return newProblem(http.StatusForbidden, codeMayNot, fmt.Sprintf(
			"the server is asked as %q and answers only as localhost or 127.0.0.1, because it lets everybody on "+
				"this machine do everything: "+
				"use one of these, or give it an access file (--jobs-access)", r.Host))
	}
	return fromSite(r)
}

var crossOrigin = http.NewCrossOriginProtection()

// fromSite refuses requests that change something and that a browser says are from another site.
func fromSite(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return newProblem(http.StatusForbidden, codeMayNot,
			fmt.Sprintf("a browser sends this for another site (%v): send it from a program", err))
	}
	return nil
}

// isLocal reports whether a host, with or without a port, is a name or an address of this machine
// alone.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// Local reports whether only this machine can reach an address to listen at, host:port. An address
// without a host is all addresses, as for [net.Listen].
func Local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && isLoopback(host)
}
