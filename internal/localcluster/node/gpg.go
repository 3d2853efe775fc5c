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
	// maxSocketPath is the maximum length of a Unix socket's path on all systems
	// (macOS: 104 bytes with the final zero).
	maxSocketPath = 103
	// longestAgentSocket is the longest path of a gpg-agent's socket below TMPDIR:
	// SOPS creates a folder for each decryption, with a number of up to ten digits
	// in its name.
	longestAgentSocket = "/sops-gnupghome-4294967295/S.gpg-agent.ssh"
	// agentPatience limits the time that an agent may take to end, agentPause is the
	// pause between two checks.
	agentPatience = 2 * time.Second
	agentPause    = 10 * time.Millisecond
)

// gpgPath adds gpg to the PATH of a program that decrypts, with keys and texts from
// a fleet, which are untrusted. gpg reads no configuration of the host, asks for no
// passphrase, opens no window, reaches no network and starts its agent with
// [agentOptions]. The keys are in the folder for temporary files.
//
// If gpg cannot work, gpgPath writes a script named gpg that prints the reason. The
// reason appears in the status of objects that need gpg; most fleets have none.
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
	// agentOptions disable smartcards, which belong to the user: a fleet's key may
	// claim that its secret is on a smartcard.
	agentOptions = []string{
		"--no-options", "--disable-scdaemon", "--pinentry-program", os.DevNull,
		"--extra-socket", "none", "--browser-socket", "none",
	}
)

// gpgCommand returns a shell script that executes a program, with options before the
// script's arguments.
func gpgCommand(program string, options ...string) string {
	words := []string{"exec", quoted(program)}
	for _, o := range options {
		words = append(words, quoted(o))
	}
	return strings.Join(words, " ") + " \"$@\"\n"
}

// refusal returns a shell script that prints a reason and exits with 127, as a shell
// does for a missing program.
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
// these folders. An agent leaves the process group of its parent, so the agent of a
// controller that was killed during a decryption would outlive the controller.
// Without a kill, the controller removes the folder, which also ends the agent. When
// the whole cluster is killed, the reaper removes the folder.
func endAgents(tmp string) error {
	sockets, err := filepath.Glob(filepath.Join(tmp, "*", "S.gpg-agent"))
	if err != nil {
		return fmt.Errorf("cannot look for gpg's agents: %w", err)
	}
	for _, socket := range sockets {
		endAgent(socket)
	}
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("cannot remove the decryption keys: %w", err)
	}
	return nil
}

// endAgent tells an agent to end until it no longer answers, in the Assuan protocol:
// the agent sends a greeting, and confirms each command.
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
