package node

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// maxSocketPath is the length that a Unix socket's path may have everywhere
	// (macOS: 104 bytes with the final zero).
	maxSocketPath = 103
	// longestAgentSocket is the longest path of a socket that gpg-agent makes below
	// TMPDIR: SOPS gives each decryption a folder of its own, with a number of up to
	// ten digits.
	longestAgentSocket = "/sops-gnupghome-4294967295/S.gpg-agent.ssh"
	// agentPatience bounds how long an agent may take to end, agentPause how long
	// passes until it is looked for again.
	agentPatience = 2 * time.Second
	agentPause    = 10 * time.Millisecond
)

// gpgPath adds gpg to the PATH of a program that decrypts, with keys and texts out
// of a fleet, which nobody trusts: gpg reads no configuration of the host, asks
// nobody for a passphrase, opens no window, reaches no network and starts its agent
// as [agentOptions] say. The folder for temporary files is where the keys are.
//
// Where gpg cannot work, what is called gpg says why. That is told by the object
// which needs it, and most fleets do not.
func gpgPath(dir, tmp string) error {
	script, agent := "", filepath.Join(dir, "gpg-agent")
	gpg, missing := exec.LookPath("gpg")
	agentProgram, agentMissing := exec.LookPath("gpg-agent")
	switch {
	case missing != nil || agentMissing != nil:
		script = refusal("this machine has no gpg and gpg-agent, which decrypt for OpenPGP keys; install GnuPG and start the cluster again")
	case len(tmp)+len(longestAgentSocket) > maxSocketPath:
		script = refusal("the path of the cluster's state folder is too long for the sockets of gpg; set TENURE_HOME to a shorter one")
	default:
		script = gpgCommand(gpg, append(gpgOptions, "--agent-program", agent)...)
		if err := writeProgram(agent, gpgCommand(agentProgram, agentOptions...)); err != nil {
			return err
		}
	}
	return writeProgram(filepath.Join(dir, "gpg"), script)
}

var (
	gpgOptions = []string{
		"--no-options", "--batch", "--no-tty", "--pinentry-mode", "error",
		"--disable-dirmngr", "--no-auto-key-retrieve", "--no-auto-key-locate",
	}
	// agentOptions keep the agent from smartcards, which are the user's: a fleet's
	// key may say that its secret is on one.
	agentOptions = []string{
		"--no-options", "--disable-scdaemon", "--pinentry-program", os.DevNull,
		"--extra-socket", "none", "--browser-socket", "none",
	}
)

// gpgCommand is a shell script that becomes a program, with options before its arguments.
func gpgCommand(program string, options ...string) string {
	words := []string{"exec", quoted(program)}
	for _, o := range options {
		words = append(words, quoted(o))
	}
	return strings.Join(words, " ") + " \"$@\"\n"
}

// refusal is a shell script that fails as a shell does that finds no program.
func refusal(why string) string {
	return "echo " + quoted(why) + " >&2\nexit 127\n"
}

func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

func writeProgram(path, script string) error {
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // a program
		return fmt.Errorf("cannot make the folder for gpg: %w", err)
	}
	return nil
}

// endAgents ends the agents that gpg has started for folders below tmp, and removes
// these folders. An agent leaves the process group of whoever starts it, so it would
// outlive a controller that was killed while it decrypted; one that was not removes
// the folder, which ends the agent too. What happens to an agent when the whole
// cluster is killed is the same: the reaper removes the folder.
func endAgents(tmp string) error {
	sockets, err := filepath.Glob(filepath.Join(tmp, "*", "S.gpg-agent"))
	if err != nil {
		return fmt.Errorf("cannot look for gpg's agents: %w", err)
	}
	for _, socket := range sockets {
		endAgent(socket)
	}
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("cannot remove what was decrypted with: %w", err)
	}
	return nil
}

// endAgent tells an agent to end until nobody answers, in the protocol of Assuan: it
// greets, and says what it has understood.
func endAgent(socket string) {
	for deadline := time.Now().Add(agentPatience); time.Now().Before(deadline); time.Sleep(agentPause) {
		c, err := net.DialTimeout("unix", socket, agentPatience)
		if err != nil {
			return
		}
		_ = c.SetDeadline(deadline)
		said := bufio.NewReader(c)
		if _, err := said.ReadString('\n'); err == nil {
			_, _ = fmt.Fprintln(c, "KILLAGENT")
			_, _ = said.ReadString('\n')
		}
		_ = c.Close()
	}
}
