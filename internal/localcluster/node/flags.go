package node

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listenHost is the only address on which processes listen.
const listenHost = "127.0.0.1"

// invocation is a command line that is safe to run on the host.
type invocation struct {
	// args is the complete command line: arguments of the form --name=value with
	// known names, after the program's subcommand if it has one.
	args []string
	// ports maps the container's ports to ports of loopback.
	ports map[int]int
	// dirs are the folders that replace paths, relative to the root.
	dirs []string
	// dropped are the names of the omitted flags.
	dropped []string
}

// argError names the argument that keeps a container from starting.
type argError struct{ flag, why string }

func (e *argError) Error() string {
	return fmt.Sprintf("flag %s is not allowed for a host process: %s", e.flag, e.why)
}

// rewrite turns the arguments of a container into the arguments of a host process.
// It replaces listen addresses by ports from reservePort, and paths by folders under
// root. It returns an error for arguments that are not in the program's list.
func (p Program) rewrite(args []string, root string, reservePort func() (int, error)) (*invocation, error) {
	inv := &invocation{args: slices.Clone(p.Prefix), ports: map[int]int{}}
	if p.Command != "" {
		if len(args) == 0 || args[0] != p.Command {
			return nil, &argError{strconv.Quote(strings.Join(args[:min(len(args), 1)], "")), p.Name + " runs here as " + strconv.Quote(p.Command) + " only, which has to be its first argument"}
		}
		inv.args, args = append(inv.args, p.Command), args[1:]
	}
	given, err := p.parse(args)
	if err != nil {
		return nil, err
	}
	last := map[string]string{}
	for _, f := range p.Flags {
		if f.Default != "" {
			last[f.Name] = f.Default
		}
	}
	for _, g := range given {
		value := g.value
		switch g.flag.Kind {
		case KindDropped, KindDroppedValue, KindRefused:
			inv.dropped = append(inv.dropped, "--"+g.flag.Name)
			continue
		case KindListen, KindPort, KindPath:
			// The last value counts, as in the program itself. An empty listen
			// address stands for the default.
			if value != "" {
				last[g.flag.Name] = value
			}
			continue
		case KindGates:
			var dropped []string
			value, dropped = dropGates(value, p.DropGates)
			inv.dropped = append(inv.dropped, dropped...)
		}
		inv.args = append(inv.args, "--"+g.flag.Name+"="+value)
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		f, _ := p.flag(name)
		if err := inv.translate(f, last[name], root, reservePort); err != nil {
			return nil, err
		}
	}
	inv.args = append(inv.args, p.Args...)
	return inv, nil
}

// translate adds the argument for a listen address, a port or a path.
func (inv *invocation) translate(f Flag, value, root string, reservePort func() (int, error)) error {
	if f.Kind == KindPath {
		dir := strings.TrimPrefix(path.Clean(value), "/")
		inv.dirs = append(inv.dirs, dir)
		inv.args = append(inv.args, "--"+f.Name+"="+filepath.Join(root, filepath.FromSlash(dir)))
		return nil
	}
	if value == "0" && f.Kind == KindListen {
		inv.args = append(inv.args, "--"+f.Name+"=0")
		return nil
	}
	if f.Kind == KindPort {
		value = ":" + value
	}
	port, err := listenPort(value)
	if err != nil {
		return &argError{"--" + f.Name, err.Error()}
	}
	host, err := reservePort()
	if err != nil {
		return fmt.Errorf("cannot find a free port for --%s: %w", f.Name, err)
	}
	if port != 0 {
		inv.ports[port] = host
	}
	address := strconv.Itoa(host)
	if f.Kind == KindListen {
		address = net.JoinHostPort(listenHost, address)
	}
	inv.args = append(inv.args, "--"+f.Name+"="+address)
	return nil
}

type givenFlag struct {
	flag  Flag
	value string
}

// parse parses arguments as spf13/pflag does, so that the program understands them
// in the same way, and checks the values.
func (p Program) parse(args []string) ([]givenFlag, error) {
	var given []givenFlag
	for i := 0; i < len(args); i++ {
		arg := args[i]
		body, ok := strings.CutPrefix(arg, "--")
		if !ok || body == "" || body[0] == '-' || body[0] == '=' {
			return nil, &argError{strconv.Quote(arg), "only --name=value is understood"}
		}
		name, value, hasValue := strings.Cut(body, "=")
		f, known := p.flag(name)
		if !known {
			return nil, &argError{"--" + name, p.Name + " has no such flag on the list of what may run on the host"}
		}
		boolean := f.Kind == KindBool || f.Kind == KindRefused || f.Kind == KindDropped
		switch {
		case hasValue:
		case boolean:
			value = "true"
		case i+1 < len(args):
			i++
			value = args[i]
		default:
			return nil, &argError{"--" + name, "it needs a value"}
		}
		if err := f.check(value); err != nil {
			return nil, &argError{"--" + name, err.Error()}
		}
		given = append(given, givenFlag{f, value})
	}
	return given, nil
}

// check returns an error if the flag must not have the value.
func (f Flag) check(value string) error {
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("the value holds a zero byte")
	}
	var err error
	switch f.Kind {
	case KindBool:
		_, err = strconv.ParseBool(value)
	case KindInt:
		_, err = strconv.ParseInt(value, 0, 64)
	case KindFloat:
		_, err = strconv.ParseFloat(value, 64)
	case KindDuration:
		_, err = time.ParseDuration(value)
	case KindURL:
		err = checkURL(value)
	case KindPath:
		err = checkPath(value)
	case KindListen:
		if value != "" && value != "0" {
			_, err = listenPort(value)
		}
	case KindPort:
		_, err = listenPort(":" + value)
	case KindRefused:
		if on, perr := strconv.ParseBool(value); perr != nil || on {
			err = fmt.Errorf("it would let the fleet run or trust something on this machine")
		}
	}
	return err
}

func checkURL(value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil {
		return err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%q is not an http or https address", value)
	}
	return nil
}

func checkPath(value string) error {
	if !path.IsAbs(value) {
		return fmt.Errorf("%q is not an absolute path", value)
	}
	if slices.Contains(strings.Split(value, "/"), "..") {
		return fmt.Errorf("%q leaves its folder", value)
	}
	if strings.Contains(value, `\`) {
		return fmt.Errorf("%q holds a backslash", value)
	}
	return nil
}

func listenPort(value string) (int, error) {
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return 0, fmt.Errorf("%q is not a listen address", value)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a listen address with a port number", value)
	}
	return int(n), nil
}

func dropGates(value string, drop []string) (kept string, dropped []string) {
	var gates []string
	for gate := range strings.SplitSeq(value, ",") {
		name, _, _ := strings.Cut(gate, "=")
		if slices.Contains(drop, strings.TrimSpace(name)) {
			dropped = append(dropped, "feature gate "+strings.TrimSpace(name))
			continue
		}
		gates = append(gates, gate)
	}
	return strings.Join(gates, ","), dropped
}
