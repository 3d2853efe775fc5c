package node

import (
	"path/filepath"
	"slices"
	"strings"
)

// leaderElection is an argument in upstream's manifests. Leader election needs a
// file that only a container has, and only one process runs at a time anyway.
const leaderElection = "enable-leader-election"

// runtimeFlags are the flags that flux-operator and all Flux controllers have, most of them from
// github.com/fluxcd/pkg/runtime (logger, leaderelection, controller, cache).
var runtimeFlags = []Flag{
	{Name: "metrics-addr", Kind: KindListen, Default: ":8080"},
	{Name: "concurrent", Kind: KindInt},
	{Name: "default-service-account", Kind: KindString},
	{Name: "log-encoding", Kind: KindString},
	{Name: "log-level", Kind: KindString},
	{Name: "min-retry-delay", Kind: KindDuration},
	{Name: "max-retry-delay", Kind: KindDuration},
	{Name: "token-cache-max-size", Kind: KindInt},
	{Name: "token-cache-max-duration", Kind: KindDuration},
	{Name: "watch-configs-label-selector", Kind: KindString},
	{Name: leaderElection, Kind: KindDropped},
	{Name: "leader-election-lease-duration", Kind: KindDuration},
	{Name: "leader-election-renew-deadline", Kind: KindDuration},
	{Name: "leader-election-retry-period", Kind: KindDuration},
	{Name: "leader-election-release-on-cancel", Kind: KindBool},
}

// commonFlags are the flags of all Flux controllers.
var commonFlags = append([]Flag{
	{Name: "health-addr", Kind: KindListen, Default: ":9440"},
	{Name: "feature-gates", Kind: KindGates},
	{Name: "kube-api-qps", Kind: KindFloat},
	{Name: "kube-api-burst", Kind: KindInt},
	{Name: "watch-all-namespaces", Kind: KindBool},
}, runtimeFlags...)

// These are groups of flags that several controllers share, and the flags of each
// controller.
var (
	eventsURL     = Flag{Name: "events-addr", Kind: KindURL}
	watchSelector = Flag{Name: "watch-label-selector", Kind: KindString}
	requeue       = Flag{Name: "requeue-dependency", Kind: KindDuration}
	jitter        = Flag{Name: "interval-jitter-percentage", Kind: KindInt}
	noCrossRefs   = Flag{Name: "no-cross-namespace-refs", Kind: KindBool}
	httpRetry     = Flag{Name: "http-retry", Kind: KindInt}
	kubeconfigSA  = Flag{Name: "default-kubeconfig-service-account", Kind: KindString}
	overrideMgr   = Flag{Name: "override-manager", Kind: KindString}
	sshKex        = Flag{Name: "ssh-kex-algos", Kind: KindString}
	sshHostKeys   = Flag{Name: "ssh-hostkey-algos", Kind: KindString}
	storagePath   = Flag{Name: "storage-path", Kind: KindPath, Default: "/data"}
	insecureExec  = Flag{Name: "insecure-kubeconfig-exec", Kind: KindRefused}
	insecureTLS   = Flag{Name: "insecure-kubeconfig-tls", Kind: KindRefused}
	storageFlags  = []Flag{
		storagePath,
		{Name: "storage-addr", Kind: KindListen, Default: ":9090"},
		{Name: "storage-adv-addr", Kind: KindString},
		{Name: "artifact-digest-algo", Kind: KindString},
		{Name: "artifact-retention-records", Kind: KindInt},
		{Name: "artifact-retention-ttl", Kind: KindDuration},
	}
	fluxEnv       = []string{"RUNTIME_NAMESPACE", "GOMAXPROCS", "GOMEMLIMIT", "GOGC"}
	fluxDropGates = []string{"OOMWatch"}
	// gitVariables are the variables of the programs that run git, which [gitEnv] limits further.
	gitVariables   = map[string][]string{"kustomize-controller": {gitVariable}}
	fluxFlagsExtra = map[string][]Flag{
		"source-controller": slices.Concat(storageFlags, []Flag{
			eventsURL, watchSelector, requeue, jitter, sshKex, sshHostKeys,
			{Name: "helm-cache-max-size", Kind: KindInt},
			{Name: "helm-cache-purge-interval", Kind: KindString},
			{Name: "helm-cache-ttl", Kind: KindString},
			{Name: "helm-chart-file-max-size", Kind: KindInt},
			{Name: "helm-chart-max-size", Kind: KindInt},
			{Name: "helm-index-max-size", Kind: KindInt},
		}),
		"kustomize-controller": {
			eventsURL, watchSelector, requeue, jitter, noCrossRefs, httpRetry, kubeconfigSA,
			overrideMgr, insecureExec, insecureTLS,
			{Name: "concurrent-ssa", Kind: KindInt},
			{Name: "custom-apply-stage-kinds", Kind: KindString},
			{Name: "default-decryption-service-account", Kind: KindString},
			{Name: "no-remote-bases", Kind: KindBool},
			{Name: "sops-age-secret", Kind: KindString},
			{Name: "sops-vault-configmap", Kind: KindString},
		},
		"helm-controller": {
			eventsURL, watchSelector, requeue, jitter, noCrossRefs, httpRetry, kubeconfigSA,
			overrideMgr, insecureExec, insecureTLS,
			{Name: "graceful-shutdown-timeout", Kind: KindDuration},
			{Name: "http-timeout", Kind: KindDuration},
			{Name: "oom-watch-current-memory-path", Kind: KindDroppedValue},
			{Name: "oom-watch-interval", Kind: KindDroppedValue},
			{Name: "oom-watch-max-memory-path", Kind: KindDroppedValue},
			{Name: "oom-watch-memory-threshold", Kind: KindDroppedValue},
			{Name: "snapshot-digest-algo", Kind: KindString},
		},
		"notification-controller": {
			noCrossRefs,
			// This controller receives events at the address; others send them
			// there.
			{Name: "events-addr", Kind: KindListen, Default: ":9090"},
			{Name: "receiverAddr", Kind: KindListen, Default: ":9292"},
			{Name: "export-http-path-metrics", Kind: KindBool},
			{Name: "rate-limit-interval", Kind: KindDuration},
		},
		"image-reflector-controller": {
			eventsURL, watchSelector, requeue, noCrossRefs, storagePath,
			{Name: "gc-interval", Kind: KindInt},
			{Name: "storage-compression-threshold", Kind: KindInt},
			{Name: "storage-value-log-file-size", Kind: KindInt},
		},
		"image-automation-controller": {eventsURL, watchSelector, noCrossRefs, sshKex, sshHostKeys},
		"source-watcher": slices.Concat(storageFlags, []Flag{
			eventsURL, watchSelector, requeue, jitter, noCrossRefs, httpRetry,
			{Name: "reconciliation-timeout", Kind: KindDuration},
		}),
	}
)

// FluxProgram is the name of the executable with Flux's controllers. Its first argument is the
// name of a controller.
const FluxProgram = "tenure-flux"

// FluxPrograms returns the seven controllers of Flux 2.9 with the flags of their main
// packages. The executable is in binDir. Without it, they fail at their start.
func FluxPrograms(binDir string) []Program {
	var programs []Program
	for name, extra := range fluxFlagsExtra {
		programs = append(programs, Program{
			Name:      name,
			Path:      filepath.Join(binDir, FluxProgram),
			Prefix:    []string{name},
			Flags:     slices.Concat(commonFlags, extra),
			DropGates: fluxDropGates,
			// kustomize-controller clones remote bases with git, and decrypts for
			// OpenPGP keys with gpg. The other controllers contain a Git library or
			// need none.
			Git: name == "kustomize-controller", GPG: name == "kustomize-controller",
			Env: slices.Concat(fluxEnv, gitVariables[name]),
		})
	}
	slices.SortFunc(programs, func(a, b Program) int { return strings.Compare(a.Name, b.Name) })
	return programs
}
