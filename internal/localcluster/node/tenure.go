package node

import "path/filepath"

// TenureServer is `tenure-server manager` with its flags. The executable is
// expected in binDir under its own name, as those of [FluxPrograms].
func TenureServer(binDir string) Program {
	const name = "tenure-server"
	return Program{
		Name:    name,
		Path:    filepath.Join(binDir, name),
		Command: "manager",
		Flags: []Flag{
			{Name: "metrics-addr", Kind: KindListen, Default: ":8080"},
			{Name: "health-addr", Kind: KindListen, Default: ":9440"},
			{Name: "webhook-addr", Kind: KindListen, Default: ":9443"},
			{Name: "log-level", Kind: KindString},
			{Name: "capsule", Kind: KindBool},
			eventsURL,
			// Unlike Flux's it works on a host: the namespace is in the
			// environment.
			{Name: leaderElection, Kind: KindBool},
		},
		Env: fluxEnv,
	}
}
