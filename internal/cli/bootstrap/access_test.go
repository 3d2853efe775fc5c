package bootstrap

import (
	"net/url"
	"testing"
)

func TestClusterURL(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, from string
		access       access
		want         string
	}{
		"deploy key": {"the token stays out of the cluster", "https://git.example.com/acme/fleet", access{username: "git"}, "ssh://git@git.example.com/acme/fleet"},
		"port":       {"a port for HTTPS is none for SSH", "https://git.example.com:8443/acme/fleet", access{username: "git"}, "ssh://git@git.example.com/acme/fleet"},
		"hostname":   {"SSH is elsewhere", "https://git.example.com/acme/fleet", access{username: "git", sshHostname: "ssh.example.com:2222"}, "ssh://git@ssh.example.com:2222/acme/fleet"},
		"token":      {"the cluster gets the token", "https://git.example.com:8443/acme/fleet", access{username: "me", tokenAuth: true}, "https://git.example.com:8443/acme/fleet"},
		"ssh":        {"the address says all", "ssh://me@git.example.com:2222/acme/fleet", access{username: "git"}, "ssh://me@git.example.com:2222/acme/fleet"},
		"no user":    {"Git hosts know one user", "ssh://git.example.com/acme/fleet", access{username: "git"}, "ssh://git@git.example.com/acme/fleet"},
		"ssh token":  {"pushed over SSH, read with a token", "ssh://git@git.example.com:2222/acme/fleet", access{username: "git", tokenAuth: true}, "https://git.example.com/acme/fleet"},
		"http":       {"a host without TLS", "http://git.example.com/acme/fleet", access{username: "git", tokenAuth: true}, "http://git.example.com/acme/fleet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, err := url.Parse(tc.from)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.access.clusterURL(from).String(); got != tc.want {
				t.Errorf("%s: the cluster reads %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
