package node

import "path/filepath"

// TenureServer returns `tenure-server` with its subcommands `manager`, `proxy`, `artifact-proxy` and `check`
// and their flags. The executable is in binDir under its own name.
func TenureServer(binDir string) []Program {
	const name = "tenure-server"
	file := filepath.Join(binDir, name)
	return []Program{{
		Name:    name,
		Path:    file,
		Command: "manager",
		Flags: []Flag{
			{Name: "metrics-addr", Kind: KindListen, Default: ":8080"},
			{Name: "health-addr", Kind: KindListen, Default: ":9440"},
			{Name: "webhook-addr", Kind: KindListen, Default: ":9443"},
			{Name: "log-level", Kind: KindString},
			{Name: "capsule", Kind: KindBool},
			{Name: "proxy-url", Kind: KindURL},
			{Name: "proxy-ca", Kind: KindString},
			{Name: "release", Kind: KindBool},
			{Name: "token-lifetime", Kind: KindDuration},
			eventsURL,
			// Unlike Flux's leader election, this one works on a host: it reads the
			// namespace from the environment.
			{Name: leaderElection, Kind: KindBool},
		},
		Env: fluxEnv,
	}, {
		Name:    name,
		Path:    file,
		Command: "proxy",
		Flags: []Flag{
			{Name: "listen", Kind: KindListen, Default: ":9001"},
			{Name: "metrics-addr", Kind: KindListen, Default: ":8080"},
			{Name: "health-addr", Kind: KindListen, Default: ":9440"},
			// The folder contains no certificate here, so the proxy creates its own,
			// in a Secret if a flag says so.
			{Name: "tls-dir", Kind: KindPath, Default: "/tls"},
			{Name: "tls-secret", Kind: KindString},
			{Name: "tls-trust", Kind: KindString},
			{Name: "tls-host", Kind: KindString},
			{Name: "shutdown-timeout", Kind: KindDuration},
			{Name: "max-requests-inflight", Kind: KindInt},
			{Name: "max-watches", Kind: KindInt},
			{Name: "max-lists", Kind: KindInt},
			{Name: "audit-log-path", Kind: KindDroppedValue}, // would be a file of the host
			{Name: "capsule", Kind: KindBool},
			{Name: "log-level", Kind: KindString},
		},
		Env: fluxEnv,
	}, {
		Name:    name,
		Path:    file,
		Command: "artifact-proxy",
		Flags: []Flag{
			{Name: "listen", Kind: KindListen, Default: "127.0.0.1:9080"},
			{Name: "server", Kind: KindString},
			{Name: "log-level", Kind: KindString},
		},
		Env: fluxEnv,
	}, {
		Name:    name,
		Path:    file,
		Command: "check",
		Flags: []Flag{
			{Name: "namespace", Kind: KindString},
			{Name: "mode", Kind: KindString},
		},
		Env: fluxEnv,
	}}
}
