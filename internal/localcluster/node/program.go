package node

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Kind defines the valid values of a flag, and how the node passes the flag on.
type Kind int

const (
	// KindString is passed on unchanged.
	KindString Kind = iota
	// KindBool is true or false; the flag alone means true.
	KindBool
	// KindInt is an integer of up to 64 bits.
	KindInt
	// KindFloat is a number.
	KindFloat
	// KindDuration is a Go duration.
	KindDuration
	// KindURL is empty or an http or https address.
	KindURL
	// KindGates is a list of feature gates. The gates in Program.DropGates are
	// omitted.
	KindGates
	// KindListen is a listen address, which a free port of loopback replaces. The
	// value 0, with which programs switch a listener off, is passed on.
	KindListen
	// KindPort is a port number, which a free port replaces. The program's Args set the
	// address.
	KindPort
	// KindPath is an absolute path in the container. A new folder in the Pod's state
	// folder replaces it.
	KindPath
	// KindDropped is a boolean that is accepted and omitted: it has no meaning on a
	// host.
	KindDropped
	// KindDroppedValue is like KindDropped, for a flag of another type.
	KindDroppedValue
	// KindRefused is a boolean that a host process must not get. The value false,
	// its default, is accepted and omitted.
	KindRefused
)

// Flag is one flag of a program.
type Flag struct {
	// Name is the flag without dashes.
	Name string
	// Kind defines the valid values.
	Kind Kind
	// Default is the program's default value. It is set for listen addresses and
	// paths, which are always passed: otherwise the program would use its default on
	// the host.
	Default string
}

// Program is a program, upstream's or ours, that may run as a host process instead
// of a container.
type Program struct {
	// Name is the last segment of the image's repository, and the name of the
	// program in the image.
	Name string
	// Path is the executable on the host.
	Path string
	// Command, if set, is the subcommand that must be the first argument in the Pod.
	// The program has other subcommands that must not run here.
	Command string
	// Prefix are the arguments before the Pod's, with which the executable is the program.
	Prefix []string
	// Flags are all flags that a Pod may pass. A Pod with any other flag does not
	// start.
	Flags []Flag
	// Args are added to the Pod's arguments.
	Args []string
	// DropGates are feature gates that need a container.
	DropGates []string
	// Git means that the program runs git from its image. Its PATH contains git
	// only; other programs have no PATH.
	Git bool
	// GPG means that the program runs gpg too. It needs Git.
	GPG bool
	// Kubeconfig is the flag that gets the path of the kubeconfig, for a program that does not
	// read the variable KUBECONFIG; "" for the others.
	Kubeconfig string
	// Env are the names of the Pod's variables that the process gets. All others are
	// omitted, because many variables change which programs and files a program uses
	// or trusts.
	Env []string
}

func (p Program) flag(name string) (Flag, bool) {
	for _, f := range p.Flags {
		if f.Name == name {
			return f, true
		}
	}
	return Flag{}, false
}

// runs reports whether the container runs this program: the image's repository ends
// in the program's name, and the command is the image's own.
func (p Program) runs(c *corev1.Container) bool {
	if imageName(c.Image) != p.Name {
		return false
	}
	switch len(c.Command) {
	case 0:
		return true
	case 1:
		return path.Base(c.Command[0]) == p.Name
	}
	return false
}

// imageName returns the last segment of an image's repository, without registry,
// path, tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndex(image, "/")+1:]
	image, _, _ = strings.Cut(image, ":")
	return image
}

// programFor returns the program for a container of a platform namespace. Of several
// programs with the same image it returns the program whose subcommand is the
// container's first argument. If none matches, it returns the first program, whose
// rewrite then returns an error.
func programFor(programs []Program, c *corev1.Container) (Program, bool) {
	var found []Program
	for _, p := range programs {
		if !p.runs(c) {
			continue
		}
		if len(c.Args) > 0 && p.Command == c.Args[0] {
			return p, true
		}
		found = append(found, p)
	}
	if len(found) == 0 {
		return Program{}, false
	}
	return found[0], true
}
