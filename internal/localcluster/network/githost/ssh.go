package githost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// services are the git programs that clients may run, over HTTP and SSH.
var services = map[string]bool{uploadPack: true, receivePack: true}

// handshakeTimeout limits the time for a client's login.
const handshakeTimeout = 30 * time.Second

// ServeSSH serves one SSH connection that a client made to host (with a port unless
// it is 22), until the connection ends. It accepts any user, key or password, except
// for private repositories: see [Host.Protect]. It runs only git-upload-pack and
// git-receive-pack of a mapped repository, never a shell. It closes the connection
// before it returns.
func (h *Host) ServeSSH(conn net.Conn, host string) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return
	}
	session, channels, requests, err := ssh.NewServerConn(conn, h.sshConfig(host))
	if err != nil {
		h.log.Debug("an SSH client did not log in", "host", host, "error", err)
		return
	}
	defer session.Close()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer cancel() // runs before Wait: git must not outlive the connection
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		if offered.ChannelType() != "session" {
			if err := offered.Reject(ssh.UnknownChannelType, "only git is served here"); err != nil {
				return
			}
			continue
		}
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		sessions.Go(func() { h.serveSession(ctx, channel, requests, caller{host, session.Permissions}) })
	}
}

// caller is the client of an SSH connection, and the host that it connected to.
type caller struct {
	host        string
	permissions *ssh.Permissions
}

// serveSession answers the requests of one session (RFC 4254, section 6). The
// session ends after the first command.
func (h *Host) serveSession(ctx context.Context, channel ssh.Channel, requests <-chan *ssh.Request, from caller) {
	defer channel.Close()
	// Requests after the command must be answered too, or the connection stalls.
	defer func() { go ssh.DiscardRequests(requests) }()
	var version []string
	for request := range requests {
		switch request.Type {
		case "env":
			var variable struct{ Name, Value string }
			ok := ssh.Unmarshal(request.Payload, &variable) == nil &&
				variable.Name == "GIT_PROTOCOL" && protocolVersion.MatchString(variable.Value)
			if ok {
				version = []string{"GIT_PROTOCOL=" + variable.Value}
			}
			answer(request, ok)
		case "exec":
			answer(request, true)
			var command struct{ Line string }
			status := uint32(128)
			if err := ssh.Unmarshal(request.Payload, &command); err == nil {
				status = h.runSession(ctx, channel, from, command.Line, version)
			}
			// The client may have hung up.
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
			return
		case "shell":
			answer(request, true)
			fmt.Fprintln(channel.Stderr(), "there is no shell here, only Git repositories")
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{1}))
			return
		default:
			answer(request, false)
		}
	}
}

func answer(request *ssh.Request, ok bool) {
	if request.WantReply {
		_ = request.Reply(ok, nil) // a client that has hung up needs no reply
	}
}

// runSession runs the git program that a client requests, and returns its exit
// status.
func (h *Host) runSession(ctx context.Context, channel ssh.Channel, from caller, line string, env []string) uint32 {
	service, path, err := parseCommand(line)
	var repo *repository
	if err == nil {
		repo, err = h.lookup(from.host, path)
	}
	if err == nil {
		err = h.askSSH(from.host, repo, service, from.permissions)
	}
	if err != nil {
		fmt.Fprintln(channel.Stderr(), err)
		return 128
	}
	cmd := h.git.command(ctx, call{args: []string{strings.TrimPrefix(service, "git-"), repo.path}, env: env})
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	err = runWithInput(cmd, channel)
	if service == receivePack {
		repo.pushed()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return uint32(exit.ExitCode())
	case err != nil:
		h.log.Debug("an SSH session ended early", "repository", repo.address.String(), "error", err)
		return 128
	}
	return 0
}

// runWithInput runs a command. Unlike [exec.Cmd.Run] with Stdin set, it does not
// wait for the end of the input after the program has ended, because a client may
// read the answer and stay connected. The copying ends when the channel is closed.
func runWithInput(cmd *exec.Cmd, input io.Reader) error {
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(pipe, input)
		pipe.Close()
	}()
	return cmd.Wait()
}

// parseCommand parses the command of a Git client, git-upload-pack PATH, with the
// quoting of git's sq_quote: single quotes around the path, but single quotes and
// exclamation marks outside of them, after a backslash.
func parseCommand(line string) (service, path string, err error) {
	refused := fmt.Errorf("cannot run %q: only %s and %s of a repository are served here", line, uploadPack, receivePack)
	if rest, ok := strings.CutPrefix(line, "git "); ok {
		line = "git-" + rest
	}
	service, quoted, ok := strings.Cut(line, " ")
	if !ok || !services[service] {
		return "", "", refused
	}
	if !strings.HasPrefix(quoted, "'") {
		if quoted == "" || strings.ContainsAny(quoted, " '\"\\$`;&|<>\n") {
			return "", "", refused
		}
		return service, quoted, nil
	}
	plain := &strings.Builder{}
	for rest := quoted; rest != ""; {
		inside, after, ok := strings.Cut(strings.TrimPrefix(rest, "'"), "'")
		if !ok || rest[0] != '\'' {
			return "", "", refused
		}
		plain.WriteString(inside)
		switch {
		case after == "":
		case strings.HasPrefix(after, `\''`), strings.HasPrefix(after, `\!'`):
			plain.WriteByte(after[1])
			after = after[2:]
		default:
			return "", "", refused
		}
		rest = after
	}
	return service, plain.String(), nil
}

// logWriter writes git's output to the log.
type logWriter struct {
	log        *slog.Logger
	repository string
}

// Write logs one piece of output.
func (w *logWriter) Write(p []byte) (int, error) {
	w.log.Debug("git says", "repository", w.repository, "message", strings.TrimSpace(string(p)))
	return len(p), nil
}
