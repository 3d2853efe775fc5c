package localcluster

import (
	"io/fs"
	"path/filepath"
)

// Logs returns the log files of all processes of the cluster.
func (c *Cluster) Logs() []string {
	var files []string
	for _, dir := range []string{filepath.Join(c.Dir, "log"), filepath.Join(c.opts.Data, "pods")} {
		_ = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && filepath.Ext(file) == ".log" {
				files = append(files, file)
			}
			return nil
		})
	}
	return files
}
