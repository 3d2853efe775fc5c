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
		Flags: append([]Flag{
			{Name: "health-addr", Kind: KindListen, Default: ":8081"},
			{Name: "reporting-interval", Kind: KindDuration},
			requeue, jitter, overrideMgr,
			{Name: "default-workload-identity-service-account", Kind: KindString},
			{Name: "storage-path", Kind: KindDroppedValue},
			{Name: "web-server-port", Kind: KindDroppedValue},
			{Name: "web-config-secret-name", Kind: KindDroppedValue},
		}, runtimeFlags...),
		// Leader election is on by default. The web pages are not a part of the fleet.
		Args: []string{"--storage-path=" + data, "--web-server-port=0", "--" + leaderElection + "=false"},
		Env:  append([]string{"DEFAULT_SERVICE_ACCOUNT", "REPORTING_INTERVAL"}, fluxEnv...),
	}
}
