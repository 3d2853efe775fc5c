package localcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tenure-dev/tenure/internal/localcluster/node"
)

// fluxOperator is the program that fleets with a FluxInstance need, and fluxOperatorConfig the
// folder beside it with its manifests. Both are built on demand: flux-operator is under the
// AGPL, so they are no part of a release.
const fluxOperator, fluxOperatorConfig = "flux-operator", "flux-operator-config"

// ErrMissingProgram reports that a program of the cluster is missing.
var ErrMissingProgram = errors.New("a program is missing")

// BinDir returns the folder of the running program. The other programs are in the same folder. It
// returns an error if the system does not tell where the program is.
func BinDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find the programs: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("cannot find the programs: %w", err)
	}
	return filepath.Dir(self), nil
}

// CheckControlPlane returns [ErrMissingProgram] if a folder, or with "" the folder of the running program, lacks the
// control plane of one of [OtherKubernetes], and the error of [CheckKubernetes].
func CheckControlPlane(binDir, kubernetes string) error {
	plane, err := controlPlaneOf(kubernetes)
	if err != nil {
		return err
	}
	if binDir == "" {
		if binDir, err = BinDir(); err != nil {
			return err
		}
	}
	return checkOther(binDir, plane)
}

// checkOther checks that the control plane of another version of Kubernetes exists.
func checkOther(binDir, plane string) error {
	version, other := strings.CutPrefix(plane, controlPlane+"-")
	if !other || runs(binDir, plane) {
		return nil
	}
	return fmt.Errorf("%w: %s not in %s; build it with `make kubernetes VERSION=%s` in a clone of Tenure's repository, once, or leave out --kubernetes to run %s", ErrMissingProgram, plane, binDir, version, KubernetesMinor)
}

// runs reports whether a folder has a program that may be executed.
func runs(binDir, name string) bool {
	info, err := os.Stat(filepath.Join(binDir, name))
	return err == nil && info.Mode()&0o111 != 0
}

// checkPrograms checks, before anything is started, that all programs of the cluster
// exist.
func checkPrograms(binDir, plane string, operator bool) error {
	var missing []string
	for _, name := range []string{"tenure", controlPlane, "tenure-server", node.FluxProgram} {
		if !runs(binDir, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s not in %s; build it with `make build`, or --build, in a clone of Tenure's repository, or name a folder, an archive or a release that has it with --programs", ErrMissingProgram, strings.Join(missing, ", "), binDir)
	}
	if err := checkOther(binDir, plane); err != nil {
		return err
	}
	if operator {
		for _, name := range []string{fluxOperator, fluxOperatorConfig} {
			if _, err := os.Stat(filepath.Join(binDir, name)); err != nil {
				return fmt.Errorf("%w: the fleet has a FluxInstance or ResourceSets, and %s is not in %s; build it with `make flux-operator` in Tenure's repository, once (flux-operator is under the AGPL and no part of Tenure)", ErrMissingProgram, name, binDir)
			}
		}
	}
	if _, err := exec.LookPath("git"); err != nil {
		return fmt.Errorf("%w: git is not in PATH; the mapped folders are served with it, so install git first", ErrMissingProgram)
	}
	return nil
}
