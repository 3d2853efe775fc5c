package node

import "path/filepath"

// FluxOperator returns flux-operator with the flags of its main package. The executable is in
// binDir under its own name. data is the folder with the manifests that its image has at
// /data.
func FluxOperator(binDir, data string) Program {
	const name = "flux-operator"
	return Program{
		Name: name,
		Path: filepath.Join(binDir, name),
		Flags: []Flag{
			{Name: "metrics-addr", Kind: KindListen, Default: ":8080"},
			{Name: "health-addr", Kind: KindListen, Default: ":8081"},
			{Name: "concurrent", Kind: KindInt},
			{Name: "reporting-interval", Kind: KindDuration},
			requeue, jitter, overrideMgr,
			{Name: "default-service-account", Kind: KindString},
			{Name: "default-workload-identity-service-account", Kind: KindString},
			{Name: "watch-configs-label-selector", Kind: KindString},
			{Name: "log-encoding", Kind: KindString},
			{Name: "log-level", Kind: KindString},
			{Name: "min-retry-delay", Kind: KindDuration},
			{Name: "max-retry-delay", Kind: KindDuration},
			{Name: "token-cache-max-size", Kind: KindInt},
			{Name: "token-cache-max-duration", Kind: KindDuration},
			{Name: "storage-path", Kind: KindDroppedValue},
			{Name: "web-server-port", Kind: KindDroppedValue},
			{Name: "web-config-secret-name", Kind: KindDroppedValue},
			{Name: leaderElection, Kind: KindDropped},
			{Name: "leader-election-lease-duration", Kind: KindDuration},
			{Name: "leader-election-renew-deadline", Kind: KindDuration},
			{Name: "leader-election-retry-period", Kind: KindDuration},
			{Name: "leader-election-release-on-cancel", Kind: KindBool},
		},
		// Leader election is on by default. The web pages are not a part of the fleet.
		Args: []string{"--storage-path=" + data, "--web-server-port=0", "--" + leaderElection + "=false"},
		Env:  append([]string{"DEFAULT_SERVICE_ACCOUNT", "REPORTING_INTERVAL"}, fluxEnv...),
	}
}
