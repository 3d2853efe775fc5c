package create

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/durationflag"

	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
	"github.com/tenure-dev/tenure/internal/ui"
)

// print prints an object as `flux create --export` does. It applies nothing: a fleet's objects
// come from its repository.
func (o *options) print(content map[string]any) error {
	if !o.export {
		return ui.WithHint(errors.New("this command only prints manifests"),
			"add --export, and write them to a file in the fleet or give them to `kubectl apply -f -`")
	}
	var out bytes.Buffer
	if err := tenantrepo.WriteObject(&out, content); err != nil {
		return err
	}
	_, err := io.WriteString(o.streams.Out, out.String())
	return err
}

// metadata returns the metadata of an object.
func (o *options) metadata(namespace, name string) (map[string]any, error) {
	if err := tenantrepo.CheckName("name", name); err != nil {
		return nil, err
	}
	if err := tenantrepo.CheckName("namespace", namespace); err != nil {
		return nil, err
	}
	metadata := map[string]any{"name": name, "namespace": namespace}
	labels, err := o.parseLabels()
	if err != nil {
		return nil, err
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	return metadata, nil
}

func addNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "flux-system", "namespace of the object")
}

// setText sets the fields of an object that are not empty.
func setText(content map[string]any, fields map[string]string) {
	for field, value := range fields {
		if value != "" {
			content[field] = value
		}
	}
}

// reference returns a reference to an object by name.
func reference(name string) map[string]any { return map[string]any{"name": name} }

// errNoURL reports that --url is missing.
var errNoURL = errors.New("the repository's address is missing: give it with --url")

// gitSource are the flags of `create source git`.
type gitSource struct {
	namespace, url                       string
	branch, tag, semver, refName, commit string
	secretRef, proxySecretRef, provider  string
	recurseSubmodules                    bool
	ignorePaths, sparseCheckoutPaths     []string
	timeout                              time.Duration
}

func (o *options) source() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "source",
		Short: "Write the manifest of a source",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g := &gitSource{}
	git := &cobra.Command{
		Use:   "git NAME",
		Short: "Write the manifest of a GitRepository",
		Example: `  tenure create source git dev-team -n apps --export \
    --url https://github.com/acme/dev-team --branch main`,
		Args: one("name of the GitRepository"),
		RunE: func(_ *cobra.Command, args []string) error {
			metadata, err := o.metadata(g.namespace, args[0])
			if err != nil {
				return err
			}
			spec, err := g.spec(o.interval)
			if err != nil {
				return err
			}
			return o.print(map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata, "spec": spec})
		},
	}
	flags := git.Flags()
	addNamespace(git, &g.namespace)
	flags.StringVar(&g.url, "url", "", "address of the repository")
	flags.StringVar(&g.branch, "branch", "", "branch")
	flags.StringVar(&g.tag, "tag", "", "tag")
	flags.StringVar(&g.semver, "tag-semver", "", "range of semantic versions; Flux fetches the tag with the highest version in it")
	flags.StringVar(&g.refName, "ref-name", "", "name of a Git reference")
	flags.StringVar(&g.commit, "commit", "", "commit")
	flags.StringVar(&g.secretRef, "secret-ref", "", "Secret with the credentials")
	flags.StringVar(&g.proxySecretRef, "proxy-secret-ref", "", "Secret with the address and credentials of a proxy")
	flags.StringVar(&g.provider, "provider", "", "provider of the credentials: generic, aws, azure or github")
	complete.Flag(git, "provider", complete.Words("generic", "aws", "azure", "github"))
	flags.BoolVar(&g.recurseSubmodules, "recurse-submodules", false, "fetch submodules too")
	flags.StringSliceVar(&g.ignorePaths, "ignore-paths", nil, "paths that Flux ignores; repeatable")
	flags.StringSliceVar(&g.sparseCheckoutPaths, "sparse-checkout-paths", nil, "folders that Flux fetches (default: all); repeatable")
	durationflag.Positive(flags, &g.timeout, "fetch-timeout", 0, "timeout of a fetch")
	cmd.AddCommand(git)
	return cmd
}

func (g *gitSource) spec(interval time.Duration) (map[string]any, error) {
	if g.url == "" {
		return nil, errNoURL
	}
	if _, err := tenantrepo.ParseURL(g.url); err != nil {
		return nil, err
	}
	ref := map[string]any{}
	switch {
	case g.commit != "":
		setText(ref, map[string]string{"commit": g.commit, "branch": g.branch})
	case g.refName != "":
		ref["name"] = g.refName
	case g.semver != "":
		ref["semver"] = g.semver
	case g.tag != "":
		ref["tag"] = g.tag
	case g.branch != "":
		ref["branch"] = g.branch
	default:
		return nil, errors.New("no revision is selected: use --branch, --tag, --commit, --ref-name or --tag-semver")
	}
	if g.provider != "" && !slices.Contains([]string{"generic", "aws", "azure", "github"}, g.provider) {
		return nil, fmt.Errorf("the provider %q is not valid: use generic, aws, azure or github", g.provider)
	}
	spec := map[string]any{"interval": interval.String(), "url": g.url, "ref": ref}
	setText(spec, map[string]string{"provider": g.provider, "ignore": strings.Join(g.ignorePaths, "\n")})
	if g.secretRef != "" {
		spec["secretRef"] = reference(g.secretRef)
	}
	if g.proxySecretRef != "" {
		spec["proxySecretRef"] = reference(g.proxySecretRef)
	}
	if g.recurseSubmodules {
		spec["recurseSubmodules"] = true
	}
	if len(g.sparseCheckoutPaths) > 0 {
		spec["sparseCheckout"] = g.sparseCheckoutPaths
	}
	if g.timeout > 0 {
		spec["timeout"] = g.timeout.String()
	}
	return spec, nil
}

// kustomization are the flags of `create kustomization`.
type kustomization struct {
	namespace, source, path, serviceAccount, targetNamespace string
	decryptionProvider, decryptionSecret, kubeConfig         string
	validation                                               string
	prune, wait                                              bool
	dependsOn, healthChecks                                  []string
	healthTimeout, retryInterval                             time.Duration
}

func (o *options) kustomization() *cobra.Command {
	k := &kustomization{}
	cmd := &cobra.Command{
		Use:     "kustomization NAME",
		Aliases: []string{"ks"},
		Short:   "Write the manifest of a Kustomization",
		Example: `  tenure create kustomization dev-team -n apps --export \
    --source GitRepository/dev-team --path ./staging --prune --service-account dev-team`,
		Args: one("name of the Kustomization"),
		RunE: func(_ *cobra.Command, args []string) error {
			metadata, err := o.metadata(k.namespace, args[0])
			if err != nil {
				return err
			}
			if k.validation != "" {
				fmt.Fprintln(o.streams.Err, "warning: --validation is ignored: Flux has no such field any more, and validates every object with the API server before it applies it")
			}
			spec, err := k.spec(o.interval)
			if err != nil {
				return err
			}
			return o.print(map[string]any{"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": metadata, "spec": spec})
		},
	}
	flags := cmd.Flags()
	addNamespace(cmd, &k.namespace)
	flags.StringVar(&k.source, "source", "", "source, as [KIND/]NAME[.NAMESPACE]; the kind is GitRepository, OCIRepository or Bucket")
	flags.StringVar(&k.path, "path", "./", "folder in the source")
	flags.BoolVar(&k.prune, "prune", false, "delete objects that are no longer in the source")
	flags.BoolVar(&k.wait, "wait", false, "wait until all applied objects are healthy")
	flags.StringSliceVar(&k.healthChecks, "health-check", nil, "workload to wait for, as KIND/NAME.NAMESPACE; repeatable")
	durationflag.Positive(flags, &k.healthTimeout, "health-check-timeout", 2*time.Minute, "timeout of the health checks")
	flags.StringSliceVar(&k.dependsOn, "depends-on", nil, "Kustomization that has to be ready first, as [NAMESPACE/]NAME; repeatable")
	flags.StringVar(&k.serviceAccount, "service-account", "", "service account as which Flux applies the objects")
	flags.StringVar(&k.decryptionProvider, "decryption-provider", "", "program that decrypts secrets: sops")
	flags.StringVar(&k.decryptionSecret, "decryption-secret", "", "Secret with the decryption keys")
	flags.StringVar(&k.targetNamespace, "target-namespace", "", "namespace for all objects")
	flags.StringVar(&k.kubeConfig, "kubeconfig-secret-ref", "", "Secret with the kubeconfig of another cluster")
	durationflag.Positive(flags, &k.retryInterval, "retry-interval", 0, "interval after which Flux retries a failed reconciliation")
	flags.StringVar(&k.validation, "validation", "", "ignored: Flux validates every object")
	return cmd
}

// sourceKinds are the kinds of sources that a Kustomization supports.
var sourceKinds = []string{"GitRepository", "OCIRepository", "Bucket"}

func parseSource(text string) (map[string]any, error) {
	kind, rest, ok := strings.Cut(text, "/")
	if !ok {
		kind, rest = sourceKinds[0], text
	}
	at := slices.IndexFunc(sourceKinds, func(k string) bool { return strings.EqualFold(k, kind) })
	sourceName, namespace, _ := strings.Cut(rest, ".")
	if at < 0 || sourceName == "" {
		return nil, fmt.Errorf("the source %q is not valid: write [KIND/]NAME[.NAMESPACE], the kind one of %s", text, strings.Join(sourceKinds, ", "))
	}
	ref := map[string]any{"kind": sourceKinds[at], "name": sourceName}
	setText(ref, map[string]string{"namespace": namespace})
	return ref, nil
}

func (k *kustomization) spec(interval time.Duration) (map[string]any, error) {
	if k.source == "" {
		return nil, errors.New("the source is missing: give it with --source")
	}
	source, err := parseSource(k.source)
	if err != nil {
		return nil, err
	}
	folder := path.Clean(k.path)
	if path.IsAbs(folder) || folder == ".." || strings.HasPrefix(folder, "../") {
		return nil, fmt.Errorf("the path %q is not valid: it leads out of the source", k.path)
	}
	if folder = "./" + folder; folder == "./." {
		folder = "./"
	}
	spec := map[string]any{"interval": interval.String(), "path": folder, "prune": k.prune, "sourceRef": source}
	setText(spec, map[string]string{"serviceAccountName": k.serviceAccount, "targetNamespace": k.targetNamespace})
	if k.retryInterval > 0 {
		spec["retryInterval"] = k.retryInterval.String()
	}
	if k.kubeConfig != "" {
		spec["kubeConfig"] = map[string]any{"secretRef": reference(k.kubeConfig)}
	}
	return spec, errors.Join(k.setDecryption(spec), k.setOrder(spec))
}

func (k *kustomization) setDecryption(spec map[string]any) error {
	switch {
	case k.decryptionProvider == "" && k.decryptionSecret == "":
		return nil
	case k.decryptionProvider != "sops":
		return fmt.Errorf("the decryption provider %q is not valid: use --decryption-provider sops", k.decryptionProvider)
	}
	decryption := map[string]any{"provider": k.decryptionProvider}
	if k.decryptionSecret != "" {
		decryption["secretRef"] = reference(k.decryptionSecret)
	}
	spec["decryption"] = decryption
	return nil
}

// healthKinds maps the kinds of health checks to their API versions, where Flux needs one.
var healthKinds = map[string]string{"Deployment": "", "DaemonSet": "", "StatefulSet": "", "HelmRelease": "helm.toolkit.fluxcd.io/v2"}

// setOrder sets the dependencies and health checks.
func (k *kustomization) setOrder(spec map[string]any) error {
	var dependencies, checks []any
	for _, text := range k.dependsOn {
		namespace, dependency, ok := strings.Cut(text, "/")
		if !ok {
			namespace, dependency = "", text
		}
		ref := reference(dependency)
		setText(ref, map[string]string{"namespace": namespace})
		dependencies = append(dependencies, ref)
	}
	for _, text := range k.healthChecks {
		kind, rest, _ := strings.Cut(text, "/")
		workload, namespace, _ := strings.Cut(rest, ".")
		api, known := healthKinds[kind]
		if !known || workload == "" || namespace == "" {
			return fmt.Errorf("the health check %q is not valid: write KIND/NAME.NAMESPACE, the kind HelmRelease, Deployment, DaemonSet or StatefulSet", text)
		}
		check := map[string]any{"kind": kind, "name": workload, "namespace": namespace}
		setText(check, map[string]string{"apiVersion": api})
		checks = append(checks, check)
	}
	if len(dependencies) > 0 {
		spec["dependsOn"] = dependencies
	}
	switch {
	case k.wait:
		spec["wait"] = true
	case len(checks) > 0:
		spec["healthChecks"] = checks
	default:
		return nil
	}
	spec["timeout"] = k.healthTimeout.String()
	return nil
}
