package node

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Kind says what the value of a flag may be and what becomes of it.
type Kind int

const (
	// KindString is passed on as it is.
	KindString Kind = iota
	// KindBool is true or false; the flag alone means true.
	KindBool
	// KindInt is a whole number of any sign and size up to 64 bits.
	KindInt
	// KindFloat is a number.
	KindFloat
	// KindDuration is a Go duration.
	KindDuration
	// KindURL is empty or an http or https address.
	KindURL
	// KindGates is a list of feature gates; those of Program.DropGates are
	// left out.
	KindGates
	// KindListen is a listen address: it becomes a free port of loopback.
	// The value 0, with which programs switch a listener off, stays.
	KindListen
	// KindPath is an absolute path in the container: it becomes a folder in
	// the Pod's state folder, which is made.
	KindPath
	// KindDropped is a boolean that is accepted and left out: it has no
	// meaning on a host.
	KindDropped
	// KindDroppedValue is the same for a flag of another type.
	KindDroppedValue
	// KindRefused is a boolean that a host process must not be given. A
	// value of false, its default, is accepted and left out.
	KindRefused
)

// Flag is one flag that a program knows.
type Flag struct {
	// Name is the flag without dashes.
	Name string
	// Kind says which values it takes.
	Kind Kind
	// Default is what the program uses when the flag is missing. It is
	// given for listen addresses and paths, which are always passed: the
	// default would otherwise be the host's.
	Default string
}

// Program is a program, upstream's or ours, that may run as a host process in
// place of a container.
type Program struct {
	// Name is the last segment of the image's repository, which is also the
	// name of the program in the image.
	Name string
	// Path is the executable on the host.
	Path string
	// Command, if set, is the subcommand that a Pod has to give as its first
	// argument: the program can do other things that it must not do here.
	Command string
	// Flags are all flags that a Pod may give it. A Pod with another one
	// does not start.
	Flags []Flag
	// DropGates are feature gates that need a container.
	DropGates []string
	// Git says that the program runs git, which is in its image. It gets a
	// PATH with git alone; all others have none.
	Git bool
	// GPG says that the program runs gpg as well, which needs Git.
	GPG bool
	// Env names the variables of the Pod that reach the process. All others
	// are left out, because many of them change what a program runs, reads
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

// runs says whether the container is this program: the image's repository ends
// in its name and the command is the image's own.
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

// imageName is the last segment of an image's repository: registry, path, tag
// and digest are left out.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndex(image, "/")+1:]
	image, _, _ = strings.Cut(image, ":")
	return image
}

// programFor finds the program that a container of a platform namespace is. Of
// several with one image it is the one whose subcommand the container gives; if it
// gives none of them, the first, which then says what is wrong.
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
