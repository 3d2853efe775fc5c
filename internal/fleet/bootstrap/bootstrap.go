// Package bootstrap connects a cluster with the repository that describes it: it commits Flux's
// manifests, locked down, to a branch, installs them, and waits until the cluster follows the
// branch.
//
// It is a list of steps. Each step checks the current state first, so that another run completes an
// interrupted one, and changes nothing after a complete one. All checks that can refuse run before
// the first push. internal/fleet/lockdown writes the files beside Flux's own manifests.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/fleet/gitrepo"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
)

// Namespace is the namespace of Flux and the name of its root objects, in every bootstrap.
const Namespace = "flux-system"

// ErrRefused is returned if the repository has manifests that bootstrap did not write. It does not
// overwrite them.
var ErrRefused = errors.New("is not overwritten")

// ErrFollows reports that the cluster follows another repository or has another Flux.
var ErrFollows = errors.New("the cluster is taken")

// ErrTimeout reports that the cluster did not follow the repository in time.
var ErrTimeout = errors.New("the cluster does not follow the repository yet")

// Options configure a bootstrap.
type Options struct {
	// Remote is the repository as this program reaches it, with credentials
	// that may push.
	Remote gitrepo.Remote
	// Path is the cluster's folder in it, slash separated.
	Path string
	// Components are the controllers, by Flux's names. Nil keeps the fleet's controllers; a new
	// fleet gets [DefaultComponents].
	Components []string
	// Profile are the options of `tenure profile`.
	Profile lockdown.Options
	// Author is the author of the commit, and Appendix a text below its message.
	Author   gitrepo.Author
	Appendix string

	// URL is the repository as the cluster reaches it.
	URL string
	// Credentials are the credentials with which the cluster reads the repository. For ssh
	// without a Key, Run creates a key by Key's options, if the cluster has none yet.
	Credentials gitauth.Credentials
	Key         gitauth.KeyOptions
	// SecretName is the Secret they are in.
	SecretName string
	// Interval is the interval at which the cluster fetches; 0 keeps the fleet's interval, or
	// is a minute in a new fleet.
	Interval time.Duration
	// Timeout bounds the wait for the cluster at the end.
	Timeout time.Duration

	// Step is called when a step begins, and returns functions for its progress and its end.
	Step func(name string) (progress func(string), done func(error))
	// Note is called with messages for the user.
	Note func(string)
	// Repository makes sure that the repository exists; nil means that it does.
	Repository func(ctx context.Context) error
	// DeployKey is called with the public key that the Git host has to grant read access. It
	// returns when the host has the key. reads says that the cluster reads the repository already,
	// so that the host has the key.
	DeployKey func(ctx context.Context, public string, reads bool) error
}

// bootstrapper is one run.
type bootstrapper struct {
	Options
	config *rest.Config
	kube   client.Client
	disco  discovery.DiscoveryInterface

	// temp is the folder of the clones.
	temp     string
	clone    *gitrepo.Clone
	planned  planned
	revision string
	// live are the root objects in the cluster.
	live root
	// objects are the objects that the fleet's folder of Flux builds.
	objects manifests
	// newKey is the public key that the Git host needs.
	newKey   string
	progress func(string)
}

// Run bootstraps the cluster. The error names the step that failed; the results of earlier steps
// stay.
func Run(ctx context.Context, config *rest.Config, o Options) (err error) {
	b := &bootstrapper{Options: o, config: config}
	if b.kube, err = client.New(rest.CopyConfig(config), client.Options{Scheme: scheme.Scheme}); err != nil {
		return fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	if b.disco, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	if b.temp, err = os.MkdirTemp("", "tenure-bootstrap-"); err != nil {
		return fmt.Errorf("cannot clone the repository: %w", err)
	}
	defer func() { _ = os.RemoveAll(b.temp) }()
	defer func() { b.close() }()
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"the cluster can be bootstrapped", b.checkCluster},
		{"", b.ensureRepository},
		{"the repository is cloned", b.open},
		{"the manifests are made", b.plan},
		{"the manifests are pushed", b.publish},
		{"Flux is installed", b.install},
		{"the credentials are in the cluster", b.giveCredentials},
		{"", b.tellKey},
		{"the sync is applied", b.applySync},
		{"the cluster follows the repository", b.wait},
	} {
		done := func(error) {}
		b.progress = func(string) {}
		if step.name != "" {
			b.progress, done = o.Step(step.name)
		}
		err := step.run(ctx)
		done(err)
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bootstrapper) close() {
	if b.clone != nil {
		_ = b.clone.Close()
	}
}

func (b *bootstrapper) ensureRepository(ctx context.Context) error {
	if b.Repository == nil {
		return nil
	}
	return b.Repository(ctx)
}

// open clones the branch, into a new folder each time.
func (b *bootstrapper) open(ctx context.Context) error {
	b.close()
	dir, err := os.MkdirTemp(b.temp, "clone-")
	if err != nil {
		return fmt.Errorf("cannot clone the repository: %w", err)
	}
	b.clone, err = gitrepo.Open(ctx, b.Remote, dir)
	return err
}

// publish commits and pushes the planned files. If another client pushed first, it plans again on
// top of that commit, once.
func (b *bootstrapper) publish(ctx context.Context) error {
	err := b.push(ctx)
	if errors.Is(err, gitrepo.ErrOutrun) {
		b.Note("another commit was pushed to " + b.Remote.Branch + " in the meantime: trying once more, on top of it")
		for _, again := range []func(context.Context) error{b.open, b.plan, b.push} {
			if err = again(ctx); err != nil {
				return err
			}
		}
	}
	b.revision = b.clone.Head()
	return err
}

func (b *bootstrapper) push(ctx context.Context) error {
	if len(b.planned.files) == 0 {
		return nil
	}
	if err := b.clone.Commit(b.planned.files, b.Author, b.message()); err != nil {
		return err
	}
	return b.clone.Push(ctx)
}

func (b *bootstrapper) message() string {
	verb, name := "Update", "single-tenant"
	if b.planned.isNew {
		verb = "Add"
	}
	if b.Profile.Tenants {
		name = "multi-tenant"
	}
	message := fmt.Sprintf("%s Flux %s in %s, %s", verb, Version(), b.Path, name)
	if b.Appendix != "" {
		message += "\n\n" + b.Appendix
	}
	return message
}

// manifests are the objects that Flux's folder builds.
type manifests struct {
	// flux are Flux's own objects; sync are the objects that connect Flux with the repository.
	flux, sync []*unstructured.Unstructured
}

func (b *bootstrapper) file(name string) string {
	return filepath.Join(b.clone.Dir, filepath.FromSlash(name))
}
