// Package config holds the manifests that Tenure applies to clusters. They are
// embedded, so that what `tenure up` runs is what is in the repository.
package config

import (
	"embed"
	"io/fs"
	"strings"
)

//go:generate go -C ../hack/fluxmanifests run .

var (
	//go:embed flux/gotk-components.yaml
	fluxComponents string
	//go:embed flux/gotk-image-components.yaml
	fluxImageComponents string
	//go:embed flux/gotk-source-watcher-crds.yaml
	fluxSourceWatcherCRDs string
	//go:embed sourcewatcher/controller.yaml
	fluxSourceWatcher string

	//go:embed crd/tenure.dev_*.yaml
	crds embed.FS
	//go:embed admission/policies.yaml
	policies string
	//go:embed admission/warn.yaml
	warnPolicies string
	//go:embed admission/shards.yaml
	shards string
	//go:embed admission/defaults.yaml
	defaults string

	//go:embed rbac/roles.yaml
	roles string
	//go:embed rbac/manager.yaml
	managerRights string
	//go:embed manager/deployment.yaml
	managerDeployment string
	//go:embed manager/enforced.yaml
	lastPolicy string
	//go:embed webhook/service.yaml
	webhookService string
	//go:embed webhook/rbac.yaml
	webhookRights string
	//go:embed webhook/configuration.yaml
	webhookConfiguration string
	//go:embed proxy/rbac.yaml
	proxyRights string
	//go:embed proxy/deployment.yaml
	proxyDeployment string
	//go:embed check/rbac.yaml
	checkRights string
	//go:embed check/cronjob.yaml
	checkJob string
	//go:embed monitoring/podmonitor.yaml
	podMonitor string
	//go:embed monitoring/rules.yaml
	alertRules string
	//go:embed monitoring/dashboard.json
	dashboard string
	//go:embed proxy/volumes/policy.yaml
	proxyVolumes string
)

// Monitoring are the PodMonitor and the PrometheusRule, for the Prometheus operator. Multi-document
// YAML.
func Monitoring() []byte { return []byte(podMonitor + "\n---\n" + alertRules) }

// Dashboard is the dashboard of Grafana, in JSON.
func Dashboard() []byte { return []byte(dashboard) }

// CRDs are the definitions of tenure.dev's kinds. Multi-document YAML.
func CRDs() []byte { return all(crds) }

// all returns the files of a folder, one after the other, by name.
func all(folder embed.FS) []byte {
	var documents strings.Builder
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := folder.ReadFile(path)
		documents.Write(content)
		return err
	})
	if err != nil {
		panic(err) // it is part of the program
	}
	return []byte(documents.String())
}

// Policies are the rules for tenants that the API server enforces: see
// internal/admission. Multi-document YAML.
func Policies() []byte { return []byte(policies) }

// WarnPolicies are the rules about objects that deny also in warn mode, in which the bindings
// of [Policies] warn: see internal/admission. Multi-document YAML.
func WarnPolicies() []byte { return []byte(warnPolicies) }

// Shards put the objects of a tenant's namespace into the shard that the namespace is
// labelled for. They need Kubernetes 1.36. Multi-document YAML.
func Shards() []byte { return []byte(shards) }

// Defaults give objects in tenants' namespaces the classes and the metadata that are their
// tenant's default. They need Kubernetes 1.36. Multi-document YAML.
func Defaults() []byte { return []byte(defaults) }

// Roles are the ClusterRoles of tenants, and of people who may read Flux's objects.
// Multi-document YAML.
func Roles() []byte { return []byte(roles) }

// Manager is `tenure-server manager` in namespace flux-system: service account,
// rights and Deployment, its webhook, and the policy that tells it that the API server enforces
// the rules. It needs [CRDs], [Roles], [Policies] and the CRDs of Flux. Multi-document YAML.
func Manager() []byte {
	return []byte(strings.Join([]string{managerRights, managerDeployment, webhookService, webhookRights, webhookConfiguration, lastPolicy}, "---\n"))
}

// Proxy is `tenure-server proxy` in namespace flux-system: service account, rights,
// Deployment and Service. It needs [CRDs]. Multi-document YAML.
func Proxy() []byte { return []byte(proxyRights + "---\n" + proxyDeployment) }

// Check is `tenure-server check` as a CronJob in namespace flux-system: service account, rights and
// CronJob. It needs [CRDs]. Multi-document YAML.
func Check() []byte { return []byte(checkRights + "---\n" + checkJob) }

// ProxyVolumes is the policy that labels PersistentVolumes, so that the proxy can find those of a
// tenant. It needs MutatingAdmissionPolicies, which are on by default from Kubernetes 1.36.
// Multi-document YAML.
func ProxyVolumes() []byte { return []byte(proxyVolumes) }

// FluxComponents is what `flux install --export` prints: namespace flux-system,
// RBAC, quota, network policies, CRDs and Deployments of source-, kustomize-,
// helm- and notification-controller, with upstream's default flags. It is not
// locked down for tenants. Multi-document YAML.
//
// The images' tags are the versions that cluster/flux builds.
func FluxComponents() []byte { return []byte(fluxComponents) }

// FluxImageComponents are the objects that `--components-extra` adds to [FluxComponents] for
// image-reflector-controller and image-automation-controller: CRDs, service accounts and
// Deployments. Multi-document YAML.
func FluxImageComponents() []byte { return []byte(fluxImageComponents) }

// FluxSourceWatcherCRDs is the CRD of ArtifactGenerator.
func FluxSourceWatcherCRDs() []byte { return []byte(fluxSourceWatcherCRDs) }

// FluxSourceWatcher are the objects that `--components-extra` adds to [FluxArtifactComponents] for
// source-watcher: CRD, service account, Service and Deployment. Multi-document YAML.
func FluxSourceWatcher() []byte { return []byte(fluxSourceWatcherCRDs + "---\n" + fluxSourceWatcher) }

// FluxArtifactComponents is [FluxComponents] with the feature gate ExternalArtifact of kustomize-
// and helm-controller, which upstream's bootstrap sets when it installs source-watcher.
func FluxArtifactComponents() []byte {
	components := fluxComponents
	for _, controller := range []string{"kustomize-controller", "helm-controller"} {
		before, deployment, _ := strings.Cut(components, "\n      labels:\n        app: "+controller+"\n")
		deployment = strings.Replace(deployment, "- --enable-leader-election\n", "- --enable-leader-election\n        - --feature-gates=ExternalArtifact=true\n", 1)
		components = before + "\n      labels:\n        app: " + controller + "\n" + deployment
	}
	return []byte(components)
}

// FluxVersion is the version of [FluxComponents], such as v2.9.5.
func FluxVersion() string {
	_, rest, _ := strings.Cut(fluxComponents, "\n# Flux Version: ")
	version, _, _ := strings.Cut(rest, "\n")
	return version
}
