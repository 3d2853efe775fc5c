package localcluster

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/helmhost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
)

// mapWorld serves each mapped folder at its address.
func (c *Cluster) mapWorld(ctx context.Context) error {
	err := network.CheckMaps(c.opts.Maps)
	if err != nil {
		return err
	}
	c.Git, err = githost.New(ctx, githost.Config{Dir: filepath.Join(c.Dir, "git"), Log: c.log.With("part", "git")})
	if err != nil {
		return err
	}
	if err := c.protect(); err != nil {
		return err
	}
	c.OCI = ocihost.New()
	inGit := c.Fleet != nil && c.artifact.Repository == ""
	if inGit {
		for path, content := range c.Fleet.Overlay {
			if err := c.Git.Overlay(ctx, c.Fleet.Sync.URL, c.Fleet.Sync.Branch, path, content); err != nil {
				return err
			}
		}
	}
	for _, m := range c.opts.Maps {
		if err := c.mapOne(ctx, m); err != nil {
			return err
		}
	}
	if c.Fleet != nil && !inGit {
		if _, err := c.OCI.Overlay(c.artifact, c.Fleet.Overlay); err != nil {
			return err
		}
	}
	for _, host := range c.Git.Hosts() {
		c.Network.HandleSSH(host, c.Git.ServeSSH)
	}
	for _, host := range c.OCI.Hosts() {
		c.Network.Handle(host, "/v2", c.OCI)
	}
	return nil
}

// protect requires credentials for the private repositories.
func (c *Cluster) protect() error {
	if err := network.CheckPrivate(c.opts.Private, c.opts.Maps); err != nil {
		return err
	}
	credentials := map[string][]githost.Credentials{}
	for _, p := range c.opts.Private {
		address, err := githost.Address(p.URL)
		if err != nil {
			return err
		}
		credentials[address] = append(credentials[address], p.Credentials)
	}
	for address, opens := range credentials {
		if err := c.Git.Protect("https://"+address, opens...); err != nil {
			return err
		}
	}
	return nil
}

// mapOne serves a folder at the host and path of its address, so that one host can
// serve repositories of several kinds.
func (c *Cluster) mapOne(ctx context.Context, m network.Map) error {
	host, path, err := m.Place()
	if err != nil {
		return err
	}
	switch m.Kind {
	case network.KindGit:
		if err := c.Git.Add(ctx, githost.Mapping{URL: m.URL, Branch: m.Branch, Dir: m.Dir}); err != nil {
			return err
		}
		c.Network.Handle(host, path, c.Git)
		c.Network.Handle(host, path+".git", c.Git)
	case network.KindHelm:
		charts, err := helmhost.New(m.Dir, path)
		if err != nil {
			return fmt.Errorf("cannot map %s: %w", m.URL, err)
		}
		c.Network.Handle(host, path, charts)
	case network.KindOCI:
		address, err := ocihost.ParseAddress(m.URL)
		if err != nil {
			return fmt.Errorf("cannot map %s: %w", m.URL, err)
		}
		return c.OCI.Add(address, m.Dir)
	case network.KindFile:
		c.Network.Handle(host, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, m.Dir) }))
	default:
		return fmt.Errorf("a folder cannot be served as %s", strings.ToLower(string(m.Kind)))
	}
	return nil
}
