//go:build joined

// Tenure-flux is the controllers of Flux in one program. The first argument names the
// controller to run:
//
//	tenure-flux source-controller --storage-path=…
//
// Their modules contain programs, which no package can import. hack/build compiles this one
// with copies of the modules in which the function main of each is the function Main of a
// package, and nothing else differs.
//
// The controllers cannot share one process, because each parses its flags into, and serves its
// metrics from, variables of the process. Each needs a process of this program.
package main

import (
	"fmt"
	"os"

	helm "github.com/fluxcd/helm-controller"
	imageautomation "github.com/fluxcd/image-automation-controller"
	imagereflector "github.com/fluxcd/image-reflector-controller"
	kustomize "github.com/fluxcd/kustomize-controller"
	notification "github.com/fluxcd/notification-controller"
	source "github.com/fluxcd/source-controller"
	watcher "github.com/fluxcd/source-watcher/v2/cmd"
)

func main() {
	name := ""
	if len(os.Args) > 1 {
		// Upstream's programs read os.Args themselves: their flags, and their name for the user
		// agent, from which the API server makes the names in managedFields.
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	switch name {
	case "source-controller":
		source.Main()
	case "kustomize-controller":
		kustomize.Main()
	case "helm-controller":
		helm.Main()
	case "notification-controller":
		notification.Main()
	case "image-reflector-controller":
		imagereflector.Main()
	case "image-automation-controller":
		imageautomation.Main()
	case "source-watcher":
		watcher.Main()
	default:
		fmt.Fprintln(os.Stderr, "usage: tenure-flux source-controller|kustomize-controller|helm-controller|notification-controller|image-reflector-controller|image-automation-controller|source-watcher [flags]")
		os.Exit(2)
	}
}
