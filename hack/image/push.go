package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// target is the destination of a push.
type target struct {
	tag      name.Tag
	keychain authn.Keychain
	options  []remote.Option
}

// parseTarget reads REPOSITORY:TAG.
func parseTarget(text string, keychain authn.Keychain) (*target, error) {
	tag, err := name.NewTag(text, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("cannot push to %q: write HOST/REPOSITORY:TAG: %w", text, err)
	}
	return &target{tag: tag, keychain: keychain, options: []remote.Option{remote.WithAuthFromKeychain(keychain), remote.WithUserAgent("tenure")}}, nil
}

// check begins an upload and cancels it, so that a wrong registry or user is found before the
// program is compiled.
func (t *target) check() error {
	if err := remote.CheckPushPermission(t.tag, t.keychain, remote.DefaultTransport); err != nil {
		return t.explain(err)
	}
	return nil
}

// packages returns the destinations of the chart and of the manifests, after it has checked that
// the registry accepts pushes to all repositories; nil without a push.
func (t *target) packages(version string) ([]*target, error) {
	if t == nil {
		return nil, nil
	}
	var all []*target
	for _, name := range []string{chartName, manifestsName} {
		to, err := t.beside(name, version)
		if err != nil {
			return nil, err
		}
		all = append(all, to)
	}
	for _, to := range append([]*target{t}, all...) {
		if err := to.check(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// push pushes the images, their documents and signatures, and then the index with the tag, so
// that the tag never names an incomplete image.
func (t *target) push(ctx context.Context, b *bundle) error {
	pusher, err := remote.NewPusher(t.options...)
	if err != nil {
		return t.explain(err)
	}
	images := make([]v1.Image, 0, len(b.platforms))
	for _, p := range b.platforms {
		images = append(images, p.image)
	}
	if err := t.pushParts(ctx, pusher, append(images, b.artifacts...)); err != nil {
		return err
	}
	if b.simple != nil {
		if err := t.pushSimple(ctx, pusher, b.digest, b.simple); err != nil {
			return err
		}
	}
	if err := pusher.Push(ctx, t.tag, b.index); err != nil {
		return t.explain(err)
	}
	return nil
}

// pushParts pushes images without a tag.
func (t *target) pushParts(ctx context.Context, pusher *remote.Pusher, images []v1.Image) error {
	for _, image := range images {
		digest, err := image.Digest()
		if err != nil {
			return fmt.Errorf("cannot push %s: %w", t.tag, err)
		}
		if err := pusher.Push(ctx, t.tag.Digest(digest.String()), image); err != nil {
			return t.explain(err)
		}
	}
	return nil
}

// pushSimple adds the signature to the existing signatures of the same digest in the registry,
// as cosign does: others may have signed the same bytes.
func (t *target) pushSimple(ctx context.Context, pusher *remote.Pusher, digest v1.Hash, signatures v1.Image) error {
	at := t.tag.Tag(simpleTag(digest))
	there, err := remote.Image(at, append([]remote.Option{remote.WithContext(ctx)}, t.options...)...)
	var answer *transport.Error
	switch {
	case err == nil:
		if signatures, err = merge(there, signatures); err != nil {
			return fmt.Errorf("cannot push %s: %w", t.tag, err)
		}
	case !errors.As(err, &answer) || answer.StatusCode != http.StatusNotFound:
		return t.explain(err)
	}
	if err := pusher.Push(ctx, at, signatures); err != nil {
		return t.explain(err)
	}
	return nil
}

// explain adds to an error which image was not pushed, and advice.
func (t *target) explain(err error) error {
	host := t.tag.RegistryStr()
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return fmt.Errorf("cannot push %s: the registry %s does not answer: check its name and the network, and run the same command again: %w", t.tag, host, err)
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("cannot push %s: the registry refuses access: log in with `docker login %s` as a user who may write to %s: %w", t.tag, host, t.tag.RepositoryStr(), err)
	case http.StatusNotFound:
		return fmt.Errorf("cannot push %s: the registry has no place for it: create %s there first, or check the name: %w", t.tag, strings.Split(t.tag.RepositoryStr(), "/")[0], err)
	}
	return fmt.Errorf("cannot push %s: the registry %s refuses it: %w", t.tag, host, err)
}
