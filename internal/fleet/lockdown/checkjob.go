package lockdown

import (
	"strings"

	"github.com/tenure-dev/tenure/config"
)

const (
	// checkFile is the file of the CronJob in a fleet. Flux applies it with the manager, whose
	// image it uses.
	checkFile = managerDir + "/check.yaml"
	// checkName is the name of the CronJob.
	checkName = "tenure-check"
	// checkMode and checkModeWarn are its argument in enforce and in warn mode.
	checkMode     = "- --mode=enforce\n"
	checkModeWarn = "- --mode=warn\n"
)

// checkJobManifests returns the manifests of the CronJob for a namespace, with the manager's image.
func checkJobManifests(namespace, image string, warn bool) string {
	manifests := managerImageLine.ReplaceAllString(string(config.Check()), "${1}"+image)
	if warn {
		manifests = strings.Replace(manifests, checkMode, checkModeWarn, 1)
	}
	return moved(manifests, namespace)
}

// writeCheck adds the CronJob to the tree, or removes it, and reports whether the tree has it. All
// clusters of a fleet share the file, so that the component of a cluster in warn mode patches it.
func (t *tree) writeCheck(c *component, wanted *bool) bool {
	_, there := t.before[checkFile]
	if wanted != nil {
		there = *wanted
	}
	delete(t.now, checkFile)
	if there {
		t.now[checkFile] = checkJobManifests(c.Namespace, managerImage(t.now[managerFile]), false)
	}
	return there
}
