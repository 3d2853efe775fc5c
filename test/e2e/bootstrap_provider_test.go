package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testprovider"
)

// provide serves a fake of a Git provider's API at git.example.com, with the local Git host behind
// it: a repository that the API creates can be cloned, and the API's tokens and keys have access.
func (r run) provide() *testprovider.Server {
	const host = "git.example.com"
	tokens := []githost.Credentials{{Token: "t0ken"}, {Token: "r3ad", ReadOnly: true}}
	protect := func(name string, keys []testprovider.Key) {
		opens := slices.Clone(tokens)
		for _, key := range keys {
			opens = append(opens, githost.Credentials{Key: key.Key, ReadOnly: key.ReadOnly})
		}
		if err := r.Git.Protect("https://"+host+"/"+name, opens...); err != nil {
			r.t.Error(err)
		}
	}
	fake := &testprovider.Server{
		Users: map[string]string{"t0ken": "jane", "r3ad": "john"}, Admins: []string{"jane"}, Owners: []string{"acme"},
		Changed: protect,
		Created: func(name string) {
			protect(name, nil)
			// The local Git host serves no repository without commits: this one has an empty commit.
			if err := r.Git.Add(r.t.Context(), githost.Mapping{URL: "https://" + host + "/" + name, Branch: "main", Dir: r.t.TempDir()}); err != nil {
				r.t.Error(err)
			}
			r.Network.Handle(host, "/"+name, r.Git)
			r.Network.Handle(host, "/"+name+".git", r.Git)
		},
	}
	r.Network.Handle(host, "/api", fake)
	// Bitbucket Server has other addresses.
	r.Network.Handle(host, "/rest", fake)
	r.Network.Handle(host, "/scm", http.StripPrefix("/scm", r.Git))
	return fake
}

// TestBootstrapProvider bootstraps a cluster by the APIs of GitHub, GitLab and Gitea: the command
// creates the repository, and registers the deploy key with which Flux then reads it.
func TestBootstrapProvider(t *testing.T) {
	t.Parallel()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	r := bootstrapped{run{testcluster.Start(t, localcluster.Options{Maps: parseMaps(t, "https://git.example.com/acme/other#main="+t.TempDir())}), t}, filepath.Join(bin, "tenure")}
	fake := r.provide()
	knownHosts := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(knownHosts, r.Git.KnownHosts("git.example.com"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Without tenants, no image of Tenure is needed.
	args := []string{"--hostname", "git.example.com", "--owner", "acme", "--repository", "fleet", "--security-profile", "single-tenant", "--ssh-known-hosts-file", knownHosts}
	with := func(more ...string) []string { return append(slices.Clone(args), more...) }

	r.bootstrapBy("github", with("GITHUB_TOKEN=wr0ng")...).fails("a token that the provider does not know", patience, "the token is refused by git.example.com", "--owner")
	r.bootstrapBy("github", with("GITHUB_TOKEN=r3ad")...).fails("a token that may not create the repository", patience, "cannot create the repository acme/fleet", "the token may not do this")
	r.bootstrapBy("github", with("GITHUB_TOKEN=t0ken", "--owner", "john", "--personal")...).fails("a token of another user", patience, "the token is not of the user john")
	r.bootstrapBy("github", with("GITHUB_TOKEN=t0ken", "--kubeconfig", r.as("jane"))...).fails("a user without rights", patience, "by jane", "cluster admin")
	if got := fake.Repository("acme/fleet"); got != nil {
		t.Errorf("a bootstrap that fails has created the repository: %s", got)
	}

	s := r.bootstrapBy("github", with("GITHUB_TOKEN=t0ken")...)
	s.exits(0, patience)
	t.Logf("on GitHub:\n%s", s.out.String())
	const title = "flux-system-main-flux-system-clusters/staging"
	for _, text := range []string{"the repository acme/fleet was created", "the deploy key " + title + " was registered"} {
		if !strings.Contains(s.out.String(), text) {
			t.Errorf("the output does not say %q", text)
		}
	}
	got := fake.Repository("acme/fleet")
	if len(got.Keys) != 1 || !got.Private {
		t.Fatalf("the provider has %s, want a private repository with one key", got)
	}
	for _, key := range got.Keys {
		if key.Title != title || !key.ReadOnly {
			t.Errorf("the deploy key is %+v", key)
		}
	}
	if url := r.field("flux-system", "gitrepository/flux-system", ".spec.url"); url != "ssh://git@git.example.com/acme/fleet" {
		t.Errorf("the cluster reads %s", url)
	}
	secret := r.kubectl("", "-n", "flux-system", "get", "secret", "flux-system", "-o", "jsonpath={.data}")
	if strings.Contains(secret, "password") || strings.Contains(s.out.String(), "t0ken") {
		t.Error("the token is in the cluster or in the output")
	}

	// The three APIs show the same repository here.
	writes := fake.Writes()
	head, _ := r.Git.Head("https://git.example.com/acme/fleet", "main")
	for provider, token := range map[string]string{"github": "GITHUB_TOKEN", "gitlab": "GITLAB_TOKEN", "gitea": "GITEA_TOKEN"} {
		r.bootstrapBy(provider, with(token+"=t0ken")...).exits(0, patience)
		now, _ := r.Git.Head("https://git.example.com/acme/fleet", "main")
		if fake.Writes() != writes || now != head {
			t.Errorf("%s: a run where all is done changes something: %d writes, head %s to %s", provider, fake.Writes()-writes, head, now)
		}
	}
	if diff := cmp.Diff(got, fake.Repository("acme/fleet")); diff != "" {
		t.Errorf("the repository has changed (-before +after):\n%s", diff)
	}
	r.bootstrapBy("gitlab", with("GITLAB_TOKEN=r3ad")...).fails("a token that may not push", patience, "cannot register the deploy key")

	fake.Forget("acme/fleet")
	again := r.bootstrapBy("gitea", with("GITEA_TOKEN=t0ken")...)
	again.says(0, "the deploy key "+title+" was registered", patience)
	again.exits(0, patience)
	if keys := fake.Repository("acme/fleet").Keys; len(keys) != 1 {
		t.Errorf("the provider has the keys %v, want that the forgotten key is registered again", keys)
	}

	r.bootstrapBy("github", with("GITHUB_TOKEN=t0ken", "--token-auth", "--ca-file", r.authority())...).exits(0, patience)
	if url := r.field("flux-system", "gitrepository/flux-system", ".spec.url"); url != "https://git.example.com/acme/fleet.git" {
		t.Errorf("with --token-auth the cluster reads %s", url)
	}
}

// TestBootstrapBitbucketServer bootstraps a cluster by the API of Bitbucket Server: the
// command creates the repository, and registers the deploy key with which Flux then reads it.
func TestBootstrapBitbucketServer(t *testing.T) {
	t.Parallel()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	r := bootstrapped{run{testcluster.Start(t, localcluster.Options{Maps: parseMaps(t, "https://git.example.com/acme/other#main="+t.TempDir())}), t}, filepath.Join(bin, "tenure")}
	fake := r.provide()
	knownHosts := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(knownHosts, r.Git.KnownHosts("git.example.com"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--hostname", "git.example.com", "--ssh-hostname", "git.example.com", "--owner", "acme", "--repository", "fleet", "--security-profile", "single-tenant", "--ssh-known-hosts-file", knownHosts}
	r.bootstrapBy("bitbucket-server", append(args, "BITBUCKET_TOKEN=r3ad")...).fails("a token that may not create the repository", patience, "cannot create the repository acme/fleet", "the token may not do this")
	for range 2 {
		writes := fake.Writes()
		s := r.bootstrapBy("bitbucket-server", append(args, "BITBUCKET_TOKEN=t0ken")...)
		s.exits(0, patience)
		if created := strings.Contains(s.out.String(), "the repository acme/fleet was created"); created != (fake.Writes() > writes) {
			t.Errorf("created %t, with %d writes:\n%s", created, fake.Writes()-writes, s.out.String())
		}
	}
	got := fake.Repository("acme/fleet")
	if got == nil || len(got.Keys) != 1 || !got.Private {
		t.Fatalf("the provider has %s, want a private repository with one key", got)
	}
	for _, key := range got.Keys {
		if key.Title != "flux-system-main-flux-system-clusters/staging" || !key.ReadOnly {
			t.Errorf("the deploy key is %+v", key)
		}
	}
	if url := r.field("flux-system", "gitrepository/flux-system", ".spec.url"); url != "ssh://git@git.example.com/acme/fleet.git" {
		t.Errorf("the cluster reads %s", url)
	}
}
