package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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

// gitVariable is the variable with the protocols that git may use, separated by colons.
const gitVariable = "GIT_ALLOW_PROTOCOL"

// NoSSH is what git prints where it would connect by SSH. A cluster's git would connect: it has an SSH client, which
// uses no proxy.
const NoSSH = "the local cluster opens no connection by SSH, where a cluster would"

// gitProtocols returns the protocols that git may use here, given the fleet's list and whether the fleet has one. Git
// without a list uses SSH.
func gitProtocols(list string, set bool) string {
	protocols := []string{"http", "https", "ssh"}
	if set {
		allowed := strings.Split(list, ":")
		protocols = slices.DeleteFunc(protocols, func(p string) bool { return !slices.Contains(allowed, p) })
	}
	return strings.Join(protocols, ":") // an empty list allows none
}

// gitEnv returns the environment of a program that runs git with addresses and
// repositories from a fleet, which are untrusted. Vars are the container's variables. git connects by HTTP only, so no
// address starts a program of its choice or opens a folder of the host. In place of an SSH client, git runs a
// command that prints NoSSH, if the fleet allows git to use SSH. It reads only the
// configuration of the repository that it has just created, and uses no template or
// hook of the host. It starts no background process and asks for no password. It
// reaches loopback only through the proxy, which has no loopback hosts. The programs
// themselves use Go's HTTP client, which reaches loopback directly, whatever
// NO_PROXY contains.
func gitEnv(path string, vars map[string]string) map[string]string {
	list, set := vars[gitVariable]
	return map[string]string{
		"PATH":                path,
		gitVariable:           gitProtocols(list, set),
		"GIT_SSH_COMMAND":     "echo '" + NoSSH + "' >&2; false",
		"GIT_SSH_VARIANT":     "ssh",
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
