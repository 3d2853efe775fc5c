package node

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// restricted is gpg in the environment of a Pod's program.
type restricted struct{ path, tmp, home string }

// restrictedGPG sets up gpg, and a folder for keys as SOPS does. The folder is in
// /tmp, because sockets need a short path and the folders of tests may have long
// ones.
func restrictedGPG(t *testing.T) restricted {
	t.Helper()
	for _, program := range []string{"gpg", "gpg-agent"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("cannot find %s: install GnuPG (package gnupg of the system's package manager), which the tests need", program)
		}
	}
	tmp, err := os.MkdirTemp("/tmp", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := endAgents(tmp); err != nil {
			t.Error(err)
		}
	})
	r := restricted{path: filepath.Join(t.TempDir(), "it's a path"), tmp: tmp, home: filepath.Join(tmp, "sops-gnupghome-1")}
	for _, dir := range []string{r.path, r.home} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time is as after a crash
		if err := gpgPath(r.path, tmp); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// run runs gpg with the arguments of SOPS.
func (r restricted) run(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.path, "gpg"), append([]string{"--homedir", r.home}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	env, _ := processEnv(Program{Git: true, GPG: true}, nil, nil, gitEnv(r.path, nil))
	cmd.Env = append(env, "HOME="+r.tmp, "TMPDIR="+r.tmp)
	err := cmd.Run()
	return out.String() + said.String(), err
}

// armored returns the output of write in ASCII armor.
func armored(t *testing.T, kind string, write func(io.Writer) error) string {
	t.Helper()
	var text bytes.Buffer
	w, err := armor.Encode(&text, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// sealed returns an encrypted message in ASCII armor.
func sealed(t *testing.T, encrypt func(io.Writer) (io.WriteCloser, error)) string {
	t.Helper()
	return armored(t, "PGP MESSAGE", func(w io.Writer) error {
		plain, err := encrypt(w)
		if err != nil {
			return err
		}
		_, err = io.WriteString(plain, "the data key")
		return errors.Join(err, plain.Close())
	})
}

// TestGPG checks that a key without a passphrase decrypts, that gpg asks for no
// passphrase, and that endAgent ends the agent.
func TestGPG(t *testing.T) {
	t.Parallel()
	gpg := restrictedGPG(t)
	// Not RSA: gpg expects the first prime to be the smaller one (RFC 9580, section
	// 5.5.5.1) and sometimes fails otherwise, and the library does not order the
	// primes.
	entity, err := openpgp.NewEntity("flux", "", "flux@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Curve: packet.Curve25519})
	if err != nil {
		t.Fatal(err)
	}
	private := armored(t, openpgp.PrivateKeyType, func(w io.Writer) error { return entity.SerializePrivate(w, nil) })
	if out, err := gpg.run(t, private, "--batch", "--import"); err != nil {
		t.Fatalf("the key is not imported: %v\n%s", err, out)
	}
	message := sealed(t, func(w io.Writer) (io.WriteCloser, error) {
		return openpgp.Encrypt(w, []*openpgp.Entity{entity}, nil, nil, nil)
	})
	if out, err := gpg.run(t, message, "-d"); err != nil || !strings.Contains(out, "the data key") {
		t.Errorf("gpg does not decrypt: %v\n%s", err, out)
	}
	asks := sealed(t, func(w io.Writer) (io.WriteCloser, error) {
		return openpgp.SymmetricallyEncrypt(w, []byte("secret"), nil, nil)
	})
	if out, err := gpg.run(t, asks, "-d"); err == nil || !strings.Contains(out, "No pinentry") {
		t.Errorf("somebody was asked for a passphrase: %v\n%s", err, out)
	}

	agent := filepath.Join(gpg.home, "S.gpg-agent")
	sockets, err := filepath.Glob(filepath.Join(gpg.home, "S.*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{agent, agent + ".ssh"}, sockets); diff != "" {
		t.Errorf("gpg left other programs running than one agent: -want, +got:\n%s", diff)
	}
	c, err := net.Dial("unix", agent)
	if err != nil {
		t.Fatalf("no agent runs, so that the rest shows nothing: %v", err)
	}
	defer c.Close()
	// This second name of the socket outlives the first.
	kept := gpg.tmp + "-kept"
	if err := errors.Join(os.Mkdir(kept, 0o700), os.Link(agent, filepath.Join(kept, "S"))); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(kept)
	// Call endAgent alone, for systems where an agent does not notice that its
	// folder vanishes.
	endAgent(agent)
	testwait.For(t, "the agent to end", agentPatience, func() (bool, string) {
		again, err := net.Dial("unix", filepath.Join(kept, "S"))
		if err == nil {
			again.Close()
		}
		return err != nil, "it still takes connections"
	})
	if err := endAgents(gpg.tmp); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(gpg.tmp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the keys are still there: %v", err)
	}
}

// TestGPGSaysWhatIsMissing checks that gpg prints the reason why it cannot work,
// which the status of the object will contain.
func TestGPGSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := gpgPath(dir, filepath.Join("/tmp", strings.Repeat("x", maxSocketPath))); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "gpg"), "-d").CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 127 || !bytes.Contains(out, []byte("TENURE_HOME")) && !bytes.Contains(out, []byte("install GnuPG")) {
		t.Errorf("gpg says %q, %v", out, err)
	}
}
