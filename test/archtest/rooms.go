package archtest

// layers are the layers of the repository from top to bottom: each imports only layers below
// it, and only these. CONTRIBUTING.md has the same table.
var layers = []layer{
	{
		folder:  "cmd",
		does:    "the programs `tenure` and `tenure-server`: stubs over `internal/cli` and `internal/server`",
		imports: []string{"internal/server", "internal/cli", "internal/process", "internal/ui"},
	},
	{
		folder:  "hack",
		does:    "builds, generates and checks the repository",
		imports: []string{"test/corpus", "test/ablation", "internal/server", "internal/cli", "internal/verify", "internal/localcluster", "internal/fleet", "internal/admission", "internal/capsule", "internal/release", "internal/flux", "internal/ui", "config"},
	},
	{
		folder: "test/e2e",
		does:   "tests of the built programs on local clusters",
	},
	{
		folder: "test/load",
		does:   "limits and times under load",
	},
	{
		folder: "test/model",
		does:   "a second, independent model of the rules, which a test compares with the API server",
	},
	{
		folder:  "test/corpus",
		does:    "small fleets in the shapes of public repositories, with hand-written verdicts",
		imports: []string{"test/ablation", "internal/verify", "api"},
	},
	{
		folder: "test/archtest",
		does:   "tests the rules below, and the imports in this table",
	},
	{
		folder:  "test/fixtures",
		does:    "shared by tests: local clusters, a running manager, CRDs, generated fleets, a Git provider's API, polling",
		imports: []string{"internal/localcluster", "internal/manager", "internal/flux", "internal/process"},
	},
	{
		folder:  "test/ablation",
		does:    "removes each control and reports the attacks that it stops",
		imports: []string{"internal/verify", "internal/admission", "internal/discovery", "internal/tenancy", "internal/flux", "config", "api"},
	},
	{
		folder:  "internal/server",
		does:    "the command tree of `tenure-server`",
		imports: []string{"internal/cli", "internal/manager", "internal/proxy", "internal/artifactproxy", "internal/ui"},
	},
	{
		folder:  "internal/cli",
		does:    "one package per command of `tenure`; `complete`, `edit`, `help`, `imageflags`, `kubeflags`, `local` and `programs` are shared by several",
		imports: []string{"internal/verify", "internal/localcluster", "internal/fleet", "internal/discovery", "internal/capsule", "internal/tenancy", "internal/images", "internal/release", "internal/flux", "internal/ui", "config", "api"},
	},
	{
		folder:  "internal/verify",
		does:    "the catalogue of attacks and its engine (`catalog`), accepted risks (`baseline`), patches (`autofix`)",
		imports: []string{"internal/localcluster", "internal/fleet", "internal/admission", "internal/discovery", "internal/capsule", "internal/tenancy", "internal/flux", "internal/process", "api"},
	},
	{
		folder:  "internal/localcluster",
		does:    "starts, wires and stops the local cluster: control plane, node, network",
		imports: []string{"internal/fleet", "internal/flux", "internal/process", "config"},
	},
	{
		folder:  "internal/fleet",
		does:    "the platform's repository: `layout`, `workspace`, `yamledit`, `lockdown`, `tenantrepo`, `bootstrap`, `scaffold`, `secrets`",
		imports: []string{"internal/admission", "internal/tenancy", "internal/images", "internal/release", "internal/flux", "config", "api"},
	},
	{
		folder:  "internal/manager",
		does:    "the manager: wiring, and one package per reconciler",
		imports: []string{"internal/admission", "internal/capsule", "internal/tenancy", "internal/process", "internal/ui", "api"},
	},
	{
		folder:  "internal/proxy",
		does:    "the proxy: authentication, filters, limits; `server` has its listeners and certificates, `fanout` reads all of a caller's namespaces",
		imports: []string{"internal/capsule", "internal/tenancy", "internal/process", "internal/ui", "api"},
	},
	{
		folder:  "internal/artifactproxy",
		does:    "the HTTP proxy of kustomize-controller: passes artifacts by their digest alone",
		imports: []string{"internal/ui"},
	},
	{
		folder:  "internal/admission",
		does:    "the rules, compiled to policies; `webhook` has the webhooks",
		imports: []string{"internal/tenancy", "internal/process", "api"},
	},
	{
		folder:  "internal/discovery",
		does:    "discovers the tenants of a cluster or fleet, however they were created",
		imports: []string{"internal/tenancy", "internal/flux", "api"},
	},
	{
		folder:  "internal/capsule",
		does:    "translates Capsule's API into Tenure's, and the status back",
		imports: []string{"api"},
	},
	{
		folder:  "internal/tenancy",
		does:    "pure functions from Tenant and profile to desired objects; quotas, grants, replication, credentials",
		imports: []string{"api"},
	},
	{
		folder: "internal/images",
		does:   "verifies the signatures of images",
	},
	{
		folder: "internal/release",
		does:   "the version of a program, and the image of this version",
	},
	{
		folder: "internal/flux",
		does:   "the only code that imports Flux's APIs",
	},
	{
		folder: "internal/process",
		does:   "child processes that die with their parent; `certs` and `pki` make and rotate certificates, `httpserver` limits clients without a credential",
	},
	{
		folder: "internal/ui",
		does:   "output for people: text, tables, progress, errors with hints",
	},
	{
		folder: "config",
		does:   "CRDs, RBAC, policies and workloads as manifests; embedded",
	},
	{
		folder: "charts",
		does:   "the Helm chart; its templates are generated from `config`",
	},
	{
		folder: "examples",
		does:   "the example fleet, its tenants' repositories, and charts",
	},
	{
		folder: "api",
		does:   "the types of `tenure.dev` and `capsule.clastix.io`",
	},
	{
		folder: "cluster",
		does:   "a module: the control plane as one program; `cluster/flux` pins Flux's controllers and makes them one program, `cluster/fluxoperator` flux-operator, `cluster/kyverno` Kyverno",
	},
	{
		folder: "sigstore",
		does:   "a module: verifies keyless signatures, as a program",
	},
}
