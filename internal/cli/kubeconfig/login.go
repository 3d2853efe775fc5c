package kubeconfig

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/ui"
)

// login are the flags of --login.
type login struct {
	wanted           bool
	issuer, clientID string
	scopes           []string
	// ca is a file with the certificates of the issuer's authority; "" trusts those of the
	// person's machine.
	ca string
	// secret is refused: it is here to say why.
	secret string
}

// add adds the flags of --login to the command. The flags that choose another credential, or that
// limit its lifetime, exclude it.
func (l *login) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&l.wanted, "login", false, "make a kubeconfig without credentials for all owners of the Tenant: each person logs in")
	flags.StringVar(&l.issuer, "oidc-issuer-url", "", "with --login, the `address` of the OpenID Connect provider, exactly as in the API server's configuration (default: the login plugin of your own kubeconfig)")
	flags.StringVar(&l.clientID, "oidc-client-id", "", "with --oidc-issuer-url, the `name` of a public client at the provider, which is one of the API server's audiences")
	flags.StringArrayVar(&l.scopes, "oidc-extra-scope", nil, "with --oidc-issuer-url, a further `scope` to ask for, such as groups (repeatable)")
	flags.StringVar(&l.ca, "oidc-ca-file", "", "with --oidc-issuer-url, a `file` with the provider's CA certificates, if people's machines do not trust them")
	flags.StringVar(&l.secret, "oidc-client-secret", "", "is refused")
	if err := flags.MarkHidden("oidc-client-secret"); err != nil {
		panic(err) // the flag does not exist: a mistake in the lines above
	}
	for _, other := range []string{"as-user", "group", "serviceaccount", "namespace", "write-secret", "kubeconfig-secret-key", "duration"} {
		cmd.MarkFlagsMutuallyExclusive("login", other)
	}
}

// check returns an error for flags that do not fit together.
func (l *login) check() error {
	switch {
	case l.secret != "":
		return ui.WithHint(errors.New("cannot write a client secret into a kubeconfig that many people get"), "make the client public at the provider: it then proves itself with PKCE instead of a secret")
	case !l.wanted && (l.issuer != "" || l.clientID != "" || l.ca != "" || len(l.scopes) > 0):
		return errors.New("the flags --oidc-… are for --login")
	case !l.wanted:
		return nil
	case l.issuer == "" && (l.clientID != "" || l.ca != "" || len(l.scopes) > 0):
		return ui.WithHint(errors.New("cannot tell where people log in"), "give --oidc-issuer-url")
	case l.issuer == "":
		return nil
	case l.clientID == "":
		return ui.WithHint(fmt.Errorf("cannot write the login for %s: the name of the client is missing", l.issuer), "give --oidc-client-id")
	}
	u, err := url.Parse(l.issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return ui.WithHint(fmt.Errorf("cannot use %q as the address of a provider", l.issuer), "write https://HOST/PATH as in the API server's configuration, without /.well-known/openid-configuration")
	}
	if strings.HasSuffix(u.Path, "/.well-known/openid-configuration") {
		return ui.WithHint(fmt.Errorf("cannot use %q as the address of a provider", l.issuer), "leave out /.well-known/openid-configuration: programs append it")
	}
	return nil
}

// loginFile makes a kubeconfig with which each person who owns the Tenant logs in.
func (o *options) loginFile(ctx context.Context, kube client.Client, config *rest.Config) error {
	tenant, err := o.readTenant(ctx, kube)
	if err != nil {
		return err
	}
	people := peopleOf(tenant)
	if len(people) == 0 {
		return ui.WithHint(fmt.Errorf("no person owns Tenant %s", o.tenant), "add a Group or a User to spec.owners, with the prefix that the API server gives the names of the provider, such as oidc:dev-team")
	}
	plugin, err := o.login.plugin(config)
	if err != nil {
		return err
	}
	target, err := o.target(ctx, kube)
	if err != nil {
		return err
	}
	cluster := &clientcmdapi.Cluster{Server: target.Server, TLSServerName: target.ServerName, CertificateAuthorityData: target.CA}
	where, err := o.printFor(o.tenant, cluster, &clientcmdapi.AuthInfo{Exec: plugin})
	if err != nil {
		return err
	}
	left := ""
	if o.login.issuer == "" {
		left = leftOut(config.ExecProvider.Env)
	}
	_, err = fmt.Fprintf(o.streams.Err, "%skubeconfig of Tenant %s for %s; it has no secret, and logs in with: %s%s\n",
		where, o.tenant, strings.Join(people, ", "), commandLine(plugin), left)
	return err
}

// leftOut names the variables of the admin's login plugin, which are not copied.
func leftOut(variables []clientcmdapi.ExecEnvVar) string {
	if len(variables) == 0 {
		return ""
	}
	var names []string
	for _, variable := range variables {
		names = append(names, variable.Name)
	}
	return "; left out the variables of your own login: " + strings.Join(names, ", ")
}

// peopleOf returns the owners of a Tenant that are people or groups of people, as KIND NAME. Names
// that begin with system: are Kubernetes' own.
func peopleOf(tenant *v1alpha1.Tenant) []string {
	var people []string
	for _, owner := range tenant.Spec.Owners {
		if (owner.Kind == rbacv1.UserKind || owner.Kind == rbacv1.GroupKind) && !strings.HasPrefix(owner.Name, "system:") {
			people = append(people, owner.Kind+" "+owner.Name)
		}
	}
	return people
}

// plugin returns the program that logs a person in: kubelogin for an issuer, and otherwise the
// program that the admin's own kubeconfig has, as those of managed clusters.
func (l *login) plugin(admin *rest.Config) (*clientcmdapi.ExecConfig, error) {
	if l.issuer == "" {
		return ownPlugin(admin.ExecProvider)
	}
	args := []string{"oidc-login", "get-token", "--oidc-issuer-url=" + l.issuer, "--oidc-client-id=" + l.clientID}
	for _, scope := range l.scopes {
		args = append(args, "--oidc-extra-scope="+scope)
	}
	if l.ca != "" {
		content, err := os.ReadFile(l.ca)
		if err != nil {
			return nil, fmt.Errorf("cannot read --oidc-ca-file: %w", err)
		}
		if block, _ := pem.Decode(content); block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("cannot read --oidc-ca-file: %s does not begin with a certificate", l.ca)
		}
		args = append(args, "--certificate-authority-data="+base64.StdEncoding.EncodeToString(content))
	}
	return &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "kubectl", Args: args, InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		InstallHint: "This login needs the plugin oidc-login (kubelogin): run `kubectl krew install oidc-login`, or see https://github.com/int128/kubelogin.",
	}, nil
}

// ownPlugin returns the admin's login plugin without its environment, which is the admin's own. It
// returns an error if the admin has none, or if its arguments hold a secret.
func ownPlugin(own *clientcmdapi.ExecConfig) (*clientcmdapi.ExecConfig, error) {
	if own == nil {
		return nil, ui.WithHint(errors.New("cannot tell how people log in: your own kubeconfig has no login plugin (exec)"), "give --oidc-issuer-url and --oidc-client-id, or choose a context with --context")
	}
	for _, arg := range own.Args {
		name, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(name, "-") && slices.ContainsFunc([]string{"secret", "password", "token"}, func(end string) bool { return strings.HasSuffix(name, end) }) {
			return nil, ui.WithHint(fmt.Errorf("cannot copy your login plugin %s: its argument %s is a secret", own.Command, name), "give --oidc-issuer-url and --oidc-client-id, or choose another context with --context")
		}
	}
	return &clientcmdapi.ExecConfig{
		APIVersion: own.APIVersion, Command: own.Command, Args: own.Args, InteractiveMode: own.InteractiveMode,
		InstallHint: own.InstallHint, ProvideClusterInfo: own.ProvideClusterInfo,
	}, nil
}

// commandLine returns the command of a login plugin, with long arguments cut.
func commandLine(plugin *clientcmdapi.ExecConfig) string {
	words := []string{plugin.Command}
	for _, arg := range plugin.Args {
		if len(arg) > 120 {
			arg = arg[:40] + "…"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}
