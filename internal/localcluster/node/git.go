package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// gitTools are git and the programs that git's own scripts (git-submodule) call by
// name. Git finds its other programs by itself.
var gitTools = []string{"git", "basename", "sed", "uname"}

// gitPath creates a folder with links to git and the programs that it needs. It is
// the PATH of a program that runs git, and contains no other program of the host.
func gitPath(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder for git: %w", err)
	}
	for _, tool := range gitTools {
		target, err := exec.LookPath(tool)
		if err != nil {
			return fmt.Errorf("cannot find %s, which git needs; install it or mend PATH: %w", tool, err)
		}
		if target, err = filepath.Abs(target); err != nil {
			return fmt.Errorf("cannot find %s: %w", tool, err)
		}
		if err := os.Symlink(target, filepath.Join(dir, tool)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cannot make the folder for git: %w", err)
		}
	}
	return nil
}

// gitEnv returns the environment of a program that runs git with addresses and
// repositories from a fleet, which are untrusted. git speaks HTTP only, so no
// address starts a program or opens a folder of the host. It reads only the
// configuration of the repository that it has just created, and uses no template or
// hook of the host. It starts no background process and asks for no password. It
// reaches loopback only through the proxy, which has no loopback hosts. The programs
// themselves use Go's HTTP client, which reaches loopback directly, whatever
// NO_PROXY contains.
func gitEnv(path string) map[string]string {
	return map[string]string{
		"PATH":                path,
		"GIT_ALLOW_PROTOCOL":  "http:https",
		"GIT_CONFIG_NOSYSTEM": "1",
		"GIT_CONFIG_GLOBAL":   os.DevNull,
		"GIT_ATTR_NOSYSTEM":   "1",
		"GIT_TEMPLATE_DIR":    "",
		"GIT_TERMINAL_PROMPT": "0",
		"GIT_ASKPASS":         "",
		"GIT_CONFIG_COUNT":    "2",
		"GIT_CONFIG_KEY_0":    "core.hooksPath",
		"GIT_CONFIG_VALUE_0":  os.DevNull,
		"GIT_CONFIG_KEY_1":    "maintenance.auto",
		"GIT_CONFIG_VALUE_1":  "false",
		"NO_PROXY":            "",
		"no_proxy":            "",
	}
}
