// Package kubeconfig implements `tenure kubeconfig`, which creates a kubeconfig for the proxy
// with a token of a tenant's account that expires. Its flags are the flags of
// proxy-kubeconfig-generator, which it replaces, except for tokens without an expiry.
package kubeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	"github.com/tenure-dev/tenure/internal/ui"
)

// fieldManager is the name under which the command writes Secrets.
const fieldManager = "tenure-kubeconfig"

// proxyTrust is the ConfigMap in which the proxy publishes its CA, with key ca.crt: see
// config/proxy.
const proxyTrust = "tenure-proxy-ca"

// proxyService is the name of the proxy's Service: see config/proxy.
const proxyService = "tenure-proxy"

type options struct {
	kubeflags.Flags

	streams ui.IO

	tenant             string
	user, group        string // of --as-user
	login              login
	account, namespace string
	server, serverName string
	serverGiven        bool
	// ca is a file with certificates; without it, they are in a Secret, and without
	// the name of one in the ConfigMap of the proxy.
	ca                              string
	tlsNamespace, tlsSecret, tlsKey string
	output, secretKey               string
	writeSecret                     bool
	duration                        time.Duration
}

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	o := &options{streams: streams}
	cmd := &cobra.Command{
		Use:   "kubeconfig [TENANT]",
		Short: "Make a kubeconfig for a tenant's account or people",
		Long: `Kubeconfig makes a kubeconfig with which an account of a tenant uses the proxy, and
prints it. Its token expires after --duration; the command prints the time on the error
stream.

Without --serviceaccount, the account is the ServiceAccount that owns the Tenant, if there
is exactly one. For Flux, annotate the account instead: the manager then writes a kubeconfig
into a Secret, and renews its token: see docs/how-to/kubeconfig.md.

With --as-user, the kubeconfig has a client certificate that the cluster signs for an
owner of the Tenant: a user, or a member of a group. It addresses the API server, which
refuses a tenant's lists of all namespaces. The proxy accepts certificates if it runs
with --client-ca-file.

With --login, the kubeconfig has no credential: it names the program with which each person
logs in. With --oidc-issuer-url that is kubectl's plugin oidc-login (kubelogin); without it,
the program in your own kubeconfig, such as those of managed clusters.`,
		Example: `  tenure kubeconfig dev-team --server https://proxy.example.com:9001 > dev-team.kubeconfig
  tenure kubeconfig dev-team --as-user alice --duration 8h > alice.kubeconfig
  tenure kubeconfig dev-team --login --oidc-issuer-url https://dex.example.com \
    --oidc-client-id kubernetes > dev-team.kubeconfig
  tenure kubeconfig --namespace dev-team --serviceaccount gitops --write-secret`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.tenant = args[0]
			}
			o.serverGiven = cmd.Flags().Changed("server")
			return kubeflags.Explain(o.run(cmd.Context()))
		},
	}
	flags := cmd.Flags()
	o.Add(cmd, flags)
	flags.StringVar(&o.user, "as-user", "", "make the kubeconfig for a person with this `name`, with a client certificate")
	flags.StringVar(&o.group, "group", "", "with --as-user, the `group` that owns the Tenant, if several do")
	flags.StringVar(&o.account, "serviceaccount", "", "the `name` of the account (default: the one that owns the Tenant)")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "the account's `namespace`")
	flags.StringVar(&o.server, "server", "https://tenure-proxy.flux-system.svc:9001", "the `address` of the proxy (without the flag: the address of the proxy's load balancer, if its Service has one)")
	flags.StringVar(&o.serverName, "server-name", "", "the `name` in the proxy's certificate, if it differs from the host in --server")
	flags.StringVar(&o.ca, "server-ca-file", "", "a `file` with the proxy's CA certificates (default: those in the Secret of --server-tls-secret-name, or else in ConfigMap "+proxyTrust+" in the proxy's namespace)")
	flags.StringVar(&o.tlsNamespace, "server-tls-secret-namespace", "flux-system", "the `namespace` of the proxy, and of the Secret with its certificate")
	flags.StringVar(&o.tlsSecret, "server-tls-secret-name", "", "the `name` of a Secret with the proxy's certificate")
	flags.StringVar(&o.tlsKey, "server-tls-secret-cafile", "ca.crt", "the `key` of the CA certificates in the Secret of --server-tls-secret-name")
	flags.DurationVar(&o.duration, "duration", time.Hour, "lifetime of the token or certificate, from 10 minutes to 24 hours")
	flags.StringVarP(&o.output, "output", "o", "", "write the kubeconfig to a `file` that only you may read, instead of printing it")
	flags.BoolVar(&o.writeSecret, "write-secret", false, "write the kubeconfig to Secret SERVICEACCOUNT-kubeconfig in the account's namespace, instead of printing it")
	flags.StringVar(&o.secretKey, "kubeconfig-secret-key", credentials.Key, "with --write-secret, the `key` of the kubeconfig in the Secret")
	cmd.MarkFlagsMutuallyExclusive("output", "write-secret")
	cmd.ValidArgsFunction = complete.First(complete.Names(&o.Flags, complete.Tenants))
	complete.Flag(cmd, "namespace", complete.Names(&o.Flags, complete.Namespaces))
	o.login.add(cmd)
	for _, account := range []string{"serviceaccount", "namespace", "write-secret"} {
		cmd.MarkFlagsMutuallyExclusive("as-user", account)
	}
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if o.group != "" && o.user == "" {
		return errors.New("--group is for --as-user")
	}
	if err := o.login.check(); err != nil {
		return err
	}
	if o.duration < credentials.MinLifetime || o.duration > credentials.MaxLifetime {
		return fmt.Errorf("cannot request a token of %s: give --duration between %s and %s", o.duration, credentials.MinLifetime, credentials.MaxLifetime)
	}
	if o.tenant == "" && (o.login.wanted || o.account == "" || o.namespace == "") {
		return ui.WithHint(errors.New("cannot choose an account for the kubeconfig"), "name a tenant, or an account with --namespace and --serviceaccount")
	}
	kube, config, err := o.connect(ctx)
	if err != nil {
		return err
	}
	if o.user != "" {
		return o.person(ctx, kube, config)
	}
	if o.login.wanted {
		return o.loginFile(ctx, kube, config)
	}
	account, err := o.find(ctx, kube)
	if err != nil {
		return err
	}
	target, err := o.target(ctx, kube)
	if err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(o.duration / time.Second))}}
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	if err := kube.SubResource("token").Create(ctx, object, request); err != nil {
		return ui.WithHint(fmt.Errorf("cannot get a token of account %s: %w", account, err), "it takes an account that exists, and the right to create serviceaccounts/token")
	}
	content, err := credentials.Kubeconfig(target, account, account.Namespace, request.Status.Token)
	if err != nil {
		return err
	}
	where, err := o.write(ctx, kube, account, content)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.streams.Err, "%skubeconfig of %s, valid until %s\n", where, account, request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339))
	return err
}

func (o *options) connect(ctx context.Context) (client.Client, *rest.Config, error) {
	config, err := o.REST(ctx)
	if err != nil {
		return nil, nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme, certificatesv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, fmt.Errorf("cannot connect to the cluster: %w", err)
		}
	}
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	return kube, config, nil
}

// readTenant reads the Tenant that the argument names. The error says how to find another one.
func (o *options) readTenant(ctx context.Context, kube client.Client) (*v1alpha1.Tenant, error) {
	tenant := &v1alpha1.Tenant{}
	err := kube.Get(ctx, client.ObjectKey{Name: o.tenant}, tenant)
	const accountHint = "without a Tenant, name the account with --namespace and --serviceaccount alone"
	switch {
	case err == nil:
		return tenant, nil
	case meta.IsNoMatchError(err):
		return nil, ui.WithHint(fmt.Errorf("cannot read Tenant %s: the cluster does not have this kind: is Tenure installed?", o.tenant), accountHint)
	case apierrors.IsNotFound(err):
		return nil, ui.WithHint(fmt.Errorf("cannot read Tenant %s: %w", o.tenant, err), "`tenure get tenants` lists them; "+accountHint)
	}
	return nil, fmt.Errorf("cannot read Tenant %s: %w", o.tenant, err)
}

// find returns the account that the flags select.
func (o *options) find(ctx context.Context, kube client.Client) (types.NamespacedName, error) {
	if o.account != "" && o.namespace != "" && o.tenant == "" {
		return types.NamespacedName{Namespace: o.namespace, Name: o.account}, nil
	}
	tenant, err := o.readTenant(ctx, kube)
	if err != nil {
		return types.NamespacedName{}, err
	}
	var found []types.NamespacedName
	for _, owner := range tenant.Spec.Owners {
		if owner.Kind == rbacv1.ServiceAccountKind && (o.account == "" || o.account == owner.Name) && (o.namespace == "" || o.namespace == owner.Namespace) {
			found = append(found, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name})
		}
	}
	switch len(found) {
	case 0:
		account := strings.TrimSpace("a ServiceAccount " + o.account)
		if o.namespace != "" {
			account += " in the namespace " + o.namespace
		}
		return types.NamespacedName{}, ui.WithHint(fmt.Errorf("no owner of Tenant %s is %s", o.tenant, account), "add one to spec.owners, or name an account with --namespace and --serviceaccount and no tenant")
	case 1:
		return found[0], nil
	}
	return types.NamespacedName{}, ui.WithHint(fmt.Errorf("cannot choose between %d ServiceAccounts that own Tenant %s", len(found), o.tenant), "choose one with --namespace and --serviceaccount, for example those of "+found[0].String())
}

// balanced returns the address of the proxy's load balancer, and the name in the certificate that
// the proxy makes for itself. Both are empty if the Service has no load balancer or the caller may
// not read it.
func (o *options) balanced(ctx context.Context, kube client.Client) (address, serverName string, err error) {
	service := &corev1.Service{}
	err = kube.Get(ctx, client.ObjectKey{Namespace: o.tlsNamespace, Name: proxyService}, service)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot read the address of the proxy from Service %s/%s: %w", o.tlsNamespace, proxyService, err)
	}
	ingress := service.Status.LoadBalancer.Ingress
	if len(ingress) == 0 || len(service.Spec.Ports) == 0 {
		return "", "", nil
	}
	host := net.JoinHostPort(cmp.Or(ingress[0].Hostname, ingress[0].IP), strconv.Itoa(int(service.Spec.Ports[0].Port)))
	return "https://" + host, proxyService + "." + o.tlsNamespace + ".svc", nil
}

// target returns the address and the CA of the proxy.
func (o *options) target(ctx context.Context, kube client.Client) (credentials.Target, error) {
	target := credentials.Target{Server: o.server, ServerName: o.serverName}
	if !o.serverGiven {
		address, serverName, err := o.balanced(ctx, kube)
		if err != nil {
			return target, err
		}
		if address != "" {
			target = credentials.Target{Server: address, ServerName: cmp.Or(o.serverName, serverName)}
		}
	}
	if o.ca != "" {
		content, err := os.ReadFile(o.ca)
		if err != nil {
			return target, fmt.Errorf("cannot read the CA certificates: %w", err)
		}
		target.CA = content
		return target, target.Validate()
	}
	if o.tlsSecret == "" {
		said := &corev1.ConfigMap{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: o.tlsNamespace, Name: proxyTrust}, said); err != nil {
			return target, ui.WithHint(fmt.Errorf("cannot read the CA certificates from ConfigMap %s/%s: %w", o.tlsNamespace, proxyTrust, err), "it is part of config/proxy; or name a Secret with --server-tls-secret-name, or give --server-ca-file")
		}
		target.CA = []byte(said.Data["ca.crt"])
		return target, target.Validate()
	}
	secret := &corev1.Secret{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: o.tlsNamespace, Name: o.tlsSecret}, secret); err != nil {
		return target, ui.WithHint(fmt.Errorf("cannot read the CA certificates from Secret %s/%s: %w", o.tlsNamespace, o.tlsSecret, err), "name it with --server-tls-secret-namespace and --server-tls-secret-name, or give --server-ca-file")
	}
	target.CA = secret.Data[o.tlsKey]
	if len(target.CA) == 0 {
		return target, ui.WithHint(fmt.Errorf("cannot find %s in Secret %s/%s", o.tlsKey, o.tlsNamespace, o.tlsSecret), "name its key with --server-tls-secret-cafile")
	}
	return target, target.Validate()
}

// write writes the kubeconfig to a Secret, a file or the output. It returns the beginning of a
// sentence that names the place.
func (o *options) write(ctx context.Context, kube client.Client, account types.NamespacedName, content []byte) (string, error) {
	if o.writeSecret {
		name := credentials.SecretName(account.Name)
		return fmt.Sprintf("Secret %s/%s has a ", account.Namespace, name), o.apply(ctx, kube, account, name, content)
	}
	return o.print(content)
}

// print writes the kubeconfig to a file or the output. It returns the same as write.
func (o *options) print(content []byte) (string, error) {
	if o.output != "" {
		return fmt.Sprintf("%s has a ", o.output), writeFile(o.output, content)
	}
	_, err := o.streams.Out.Write(content)
	return "", err
}

// apply writes the Secret, with a label so that only the platform can change it. It returns an
// error for a Secret that the manager or another client wrote.
func (o *options) apply(ctx context.Context, kube client.Client, account types.NamespacedName, name string, content []byte) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: account.Namespace, Name: name,
			Labels:      map[string]string{credentials.Label: "given"},
			Annotations: map[string]string{tenancy.AnnotationAccount: account.String()},
		},
		Type: corev1.SecretTypeOpaque, Data: map[string][]byte{cmp.Or(o.secretKey, credentials.Key): content},
	}
	fail := func(err error, hints ...string) error {
		return ui.WithHint(fmt.Errorf("cannot write Secret %s/%s: %w", account.Namespace, name, err), hints...)
	}
	err := kube.Create(ctx, secret, client.FieldOwner(fieldManager))
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fail(err)
		}
		return nil
	}
	have := &corev1.Secret{}
	if err := kube.Get(ctx, client.ObjectKeyFromObject(secret), have); err != nil {
		return fail(err)
	}
	switch have.Labels[credentials.Label] {
	case "given":
	case "":
		return fail(errors.New("there is one that this command did not write"), "remove it first, if nobody needs it")
	default:
		return fail(errors.New("the manager keeps it"), "Flux can use it as it is: see docs/how-to/kubeconfig.md")
	}
	// The resource version prevents overwriting a concurrent change.
	secret.UID, secret.ResourceVersion = have.UID, have.ResourceVersion
	if err := kube.Update(ctx, secret, client.FieldOwner(fieldManager)); err != nil {
		return fail(err)
	}
	return nil
}

// writeFile writes a file atomically. Only the owner can read the file, even if it existed
// with other permissions.
func writeFile(name string, content []byte) error {
	// Only the owner can read a temporary file.
	file, err := os.CreateTemp(filepath.Dir(name), ".kubeconfig-*")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot write %s: there is no folder %s", name, filepath.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}
