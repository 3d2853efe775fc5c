package node

import (
	"path/filepath"
	"slices"
)

// kyvernoEnv are the variables that Kyverno's programs read. TUF_ROOT is not among them: it is a
// path of the container, and the default is in the home folder.
var kyvernoEnv = []string{
	"KYVERNO_NAMESPACE", "KYVERNO_SERVICEACCOUNT_NAME", "KYVERNO_ROLE_NAME", "KYVERNO_DEPLOYMENT",
	"KYVERNO_POD_NAME", "KYVERNO_SVC", "KYVERNO_DRYRUN_NAMESPACE", "INIT_CONFIG", "METRICS_CONFIG",
	"GOMAXPROCS", "GOMEMLIMIT", "GOGC",
}

// kyvernoFlags are the flags that Kyverno's controllers share (its package cmd/internal). Flags
// for profiles, traces and metrics that are sent somewhere, for trust roots of files and for
// credentials of cloud providers are left out. So are the lists of addresses that a policy may
// request: without them, Kyverno refuses this machine's own.
var kyvernoFlags = slices.Concat([]Flag{
	{Name: "metricsPort", Kind: KindPort, Default: "8000"},
	{Name: "controllerRuntimeMetricsAddress", Kind: KindListen, Default: ":8080"},
	{Name: "loggingFormat", Kind: KindString},
	{Name: "loggingtsFormat", Kind: KindString},
	{Name: "disableLogColor", Kind: KindBool},
	{Name: "v", Kind: KindInt},
	{Name: "autoMemLimitEnabled", Kind: KindBool},
	{Name: "autoMemLimitRatio", Kind: KindFloat},
	{Name: "disableMetrics", Kind: KindBool},
	{Name: "clientRateLimitQPS", Kind: KindFloat},
	{Name: "clientRateLimitBurst", Kind: KindInt},
	{Name: "eventsRateLimitQPS", Kind: KindFloat},
	{Name: "eventsRateLimitBurst", Kind: KindInt},
	{Name: "resyncPeriod", Kind: KindDuration},
	{Name: "crdWatcher", Kind: KindBool},
	{Name: "enablePolicyException", Kind: KindBool},
	{Name: "exceptionNamespace", Kind: KindString},
	{Name: "enableConfigMapCaching", Kind: KindBool},
	{Name: "enableDeferredLoading", Kind: KindBool},
	{Name: "allowInsecureRegistry", Kind: KindBool},
	{Name: "imagePullSecrets", Kind: KindString},
	{Name: "imageVerifyCacheEnabled", Kind: KindBool},
	{Name: "imageVerifyCacheMaxSize", Kind: KindInt},
	{Name: "imageVerifyCacheTTLDuration", Kind: KindDuration},
	{Name: "leaderElectionRetryPeriod", Kind: KindDuration},
	{Name: "enableReporting", Kind: KindString},
	{Name: "allowedResults", Kind: KindString},
	{Name: "maxQueuedEvents", Kind: KindInt},
	{Name: "omitEvents", Kind: KindString},
	{Name: "maxAPICallResponseLength", Kind: KindInt},
	{Name: "apiCallTimeout", Kind: KindDuration},
	{Name: "maxGlobalContextEntries", Kind: KindInt},
}, dropped(KindDropped, "profile", "enableTracing", "enableTuf", "enableCosignLogging", "allowHTTPInNamespacedPolicies"),
	dropped(KindDroppedValue, "metricsHost", "profilePort", "profileAddress", "tracingAddress", "tracingPort", "tracingCreds",
		"otelConfig", "otelCollector", "transportCreds", "metricsCASecretName", "metricsTLSSecretName", "metricsServerIP",
		"exemplarFilter", "kubeconfig", "tufMirror", "tufRoot", "tufRootRaw", "registryCredentialHelpers", "httpBlocklist", "httpAllowlist"),
)

// noColor keeps escape codes out of the log, which is a file.
const noColor = "--disableLogColor=true"

// dropped returns flags that are accepted and omitted.
func dropped(kind Kind, names ...string) []Flag {
	flags := make([]Flag, 0, len(names))
	for _, name := range names {
		flags = append(flags, Flag{Name: name, Kind: kind})
	}
	return flags
}

// Kyverno returns Kyverno's admission controller and background controller with the flags of
// their main packages. The executables are in binDir. Kyverno's other Pods are simulated: they
// write reports and delete objects on a schedule, and refuse nothing.
func Kyverno(binDir string) []Program {
	return []Program{{
		Name: "kyverno",
		Path: filepath.Join(binDir, "kyverno"),
		Flags: slices.Concat(kyvernoFlags, []Flag{
			{Name: "webhookServerPort", Kind: KindPort, Default: "9443"},
			{Name: "servicePort", Kind: KindInt},
			{Name: "caSecretName", Kind: KindString},
			{Name: "tlsSecretName", Kind: KindString},
			{Name: "tlsKeyAlgorithm", Kind: KindString},
			{Name: "renewBefore", Kind: KindDuration},
			{Name: "disableCertManagerController", Kind: KindBool},
			{Name: "backgroundServiceAccountName", Kind: KindString},
			{Name: "reportsServiceAccountName", Kind: KindString},
			{Name: "webhookTimeout", Kind: KindInt},
			{Name: "webhookRegistrationTimeout", Kind: KindDuration},
			{Name: "autoUpdateWebhooks", Kind: KindBool},
			{Name: "excludeBootstrapResources", Kind: KindBool},
			{Name: "admissionReports", Kind: KindBool},
			{Name: "maxAdmissionReports", Kind: KindInt},
			{Name: "maxAuditWorkers", Kind: KindInt},
			{Name: "maxAuditCapacity", Kind: KindInt},
			{Name: "protectManagedResources", Kind: KindBool},
			{Name: "forceFailurePolicyIgnore", Kind: KindBool},
			{Name: "generateValidatingAdmissionPolicy", Kind: KindBool},
			{Name: "generateMutatingAdmissionPolicy", Kind: KindBool},
			{Name: "dumpPayload", Kind: KindBool},
			{Name: "dumpPatches", Kind: KindBool},
		}, dropped(KindDropped, "autogenV2"), dropped(KindDroppedValue, "serverIP", "webhookServerHost")),
		Args:       []string{noColor, "--metricsHost=" + listenHost, "--webhookServerHost=" + listenHost},
		Env:        kyvernoEnv,
		Kubeconfig: "kubeconfig",
	}, {
		Name: "background-controller",
		Path: filepath.Join(binDir, "kyverno-background-controller"),
		Flags: slices.Concat(kyvernoFlags, []Flag{
			{Name: "genWorkers", Kind: KindInt},
			{Name: "maxBackgroundReports", Kind: KindInt},
		}),
		Args:       []string{noColor, "--metricsHost=" + listenHost},
		Env:        kyvernoEnv,
		Kubeconfig: "kubeconfig",
	}}
}
