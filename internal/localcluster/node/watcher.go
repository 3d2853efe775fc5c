package node

import (
	"path/filepath"
	"slices"

	"github.com/tenure-dev/tenure/internal/localcluster/artifacts"
)

// SourceWatcher returns the stand-in for source-watcher, which is a command of tenure in binDir.
// It accepts source-watcher's flags and omits those that it does not have.
func SourceWatcher(binDir string) Program {
	return Program{
		Name:   "source-watcher",
		Path:   filepath.Join(binDir, "tenure"),
		Prefix: []string{artifacts.Command},
		Flags: slices.Concat([]Flag{
			{Name: "health-addr", Kind: KindListen, Default: ":9440"},
			{Name: "storage-addr", Kind: KindListen, Default: ":9090"},
			{Name: "storage-adv-addr", Kind: KindString},
			{Name: "watch-all-namespaces", Kind: KindBool},
			{Name: "concurrent", Kind: KindInt},
			storagePath, requeue, noCrossRefs,
		}, dropped(KindDropped, leaderElection, "leader-election-release-on-cancel"), dropped(KindDroppedValue,
			"metrics-addr", "events-addr", "feature-gates", "http-retry", "reconciliation-timeout",
			"artifact-digest-algo", "artifact-retention-records", "artifact-retention-ttl",
			"interval-jitter-percentage", "kube-api-qps", "kube-api-burst", "log-level", "log-encoding",
			"min-retry-delay", "max-retry-delay", "watch-label-selector", "watch-configs-label-selector",
			"default-service-account", "token-cache-max-size", "token-cache-max-duration",
			"leader-election-lease-duration", "leader-election-renew-deadline", "leader-election-retry-period",
		)),
		Env: fluxEnv,
	}
}
