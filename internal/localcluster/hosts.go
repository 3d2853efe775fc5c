package localcluster

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/helmhost"
)

// mapWorld serves every mapped folder at its address.
func (c *Cluster) mapWorld(ctx context.Context) error {
	var err error
	c.Git, err = githost.New(ctx, githost.Config{Dir: filepath.Join(c.Dir, "git"), Log: c.log.With("part", "git")})
	if err != nil {
		return err
	}
	if c.Fleet != nil {
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
	for _, host := range c.Git.Hosts() {
		c.Network.Handle(host, "", c.Git)
		c.Network.HandleSSH(host, c.Git.ServeSSH)
	}
	return nil
}

func (c *Cluster) mapOne(ctx context.Context, m network.Map) error {
	switch m.Kind {
	case network.KindGit:
		return c.Git.Add(ctx, githost.Mapping{URL: m.URL, Branch: m.Branch, Dir: m.Dir})
	case network.KindHelm:
		u, err := url.Parse(m.URL)
		if err != nil {
			return fmt.Errorf("cannot map %s: %w", m.URL, err)
		}
		host, err := helmhost.New(m.Dir, u.Path)
		if err != nil {
			return fmt.Errorf("cannot map %s: %w", m.URL, err)
		}
		c.Network.Handle(u.Hostname(), u.Path, host)
		return nil
	}
	return fmt.Errorf("cannot map %s: an %s cannot be served yet", m.URL, m.Kind)
}
