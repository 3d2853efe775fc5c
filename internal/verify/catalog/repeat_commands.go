package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apisets "k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// maxRepeated is the maximum size of a request's body in a command, in bytes.
const maxRepeated = 32 << 10

// sentRequest is a request to the API server with the attacker's identity.
type sentRequest struct {
	who                 identity
	method, contentType string
	url                 url.URL
	body                []byte
	// status is the code of the answer; 0 if there was none.
	status int
	// answer is the object in the answer to an accepted request that writes; nil if it is not known.
	answer []byte
}

// recorder keeps the requests of one attack. It is safe for concurrent use.
type recorder struct {
	mu  sync.Mutex
	all []sentRequest
}

type recorderKey struct{}

// recorded returns a context in which clients record the requests of a tenant, and the recorder.
func recorded(ctx context.Context) (context.Context, *recorder) {
	r := &recorder{}
	return context.WithValue(ctx, recorderKey{}, r), r
}

// recordingTransport adds requests to the recorder in their context.
type recordingTransport struct {
	who  identity
	next http.RoundTripper
}

// recording makes a client's configuration record its requests, which are in JSON so that people can read
// them.
func recording(config *rest.Config, who identity) {
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recordingTransport{who: who, next: next} })
}

// RoundTrip implements [http.RoundTripper].
func (t *recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	to, ok := r.Context().Value(recorderKey{}).(*recorder)
	if !ok {
		return t.next.RoundTrip(r)
	}
	s := sentRequest{who: t.who, method: r.Method, contentType: r.Header.Get("Content-Type"), url: *r.URL}
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err == nil {
			// A command does not contain a longer body.
			s.body, _ = io.ReadAll(io.LimitReader(body, maxRepeated+1))
			_ = body.Close()
		}
	}
	answer, err := t.next.RoundTrip(r)
	if answer != nil {
		s.status = answer.StatusCode
		s.keepAnswer(answer)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	to.all = append(to.all, s)
	return answer, err
}

// repeat returns a command that repeats the decisive request of an attack, or "". For a stopped attack this
// is the first refused request, or else the first request for an object that a controller refused. For an
// attack that got through it is the last accepted request. Requests with an identity that the attack
// created have no command.
func (r *recorder) repeat(f Finding, who identity) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var chosen *sentRequest
	for i := range r.all {
		s := &r.all[i]
		reads, accepted := s.method == http.MethodGet, s.accepted()
		switch {
		case s.isAuthorizationReview() || s.who.controller:
		case f.Outcome == GotThrough && accepted && (chosen == nil || !reads || chosen.method == http.MethodGet):
			chosen = s
		case f.Outcome == Stopped && s.refused() && (chosen == nil || !chosen.refused()):
			chosen = s
		case f.Outcome == Stopped && accepted && !reads && chosen == nil:
			chosen = s
		}
	}
	if chosen == nil || chosen.who.user != who.user {
		return ""
	}
	if made := r.maker(*chosen); made != nil {
		// The attack has deleted the object that it changed.
		return made.command() + "\n" + chosen.command() + "\n" + made.undo()
	}
	return chosen.command()
}

// maker returns the request that created the object of a change, or nil if the attack did not create the
// object.
func (r *recorder) maker(change sentRequest) *sentRequest {
	if change.method != http.MethodPatch && change.method != http.MethodPut {
		return nil
	}
	for i := range r.all {
		s := &r.all[i]
		if s.method == http.MethodPost && s.status == http.StatusCreated && s.url.Query().Get("dryRun") == "" && s.url.Path+"/"+s.name() == change.url.Path {
			return s
		}
	}
	return nil
}

// name returns the name of the object in the body.
func (s *sentRequest) name() string {
	var named metav1.PartialObjectMetadata
	if json.Unmarshal(s.body, &named) != nil {
		return ""
	}
	return named.Name
}

// undo returns the command that deletes the object that a request creates.
func (s *sentRequest) undo() string {
	return shell([]string{"delete", "--raw", s.url.Path + "/" + s.name()})
}

// accepted reports whether the API server accepted a request. A request to run no command in a Pod is accepted if the
// answer says what it lacks: see [Scenario.tryExec].
func (s *sentRequest) accepted() bool {
	return s.status >= 200 && s.status < 300 || s.status == http.StatusBadRequest && strings.HasSuffix(s.url.Path, "/exec")
}

// refused reports whether the API server refused a request for another reason than a missing or existing
// object.
func (s *sentRequest) refused() bool {
	return s.status == http.StatusForbidden || s.status == http.StatusUnprocessableEntity || s.status == http.StatusBadRequest || s.status == http.StatusUnauthorized
}

// isAuthorizationReview reports whether a request asks for the rights of a user.
func (s *sentRequest) isAuthorizationReview() bool {
	return strings.Contains(s.url.Path, "/apis/authorization.k8s.io/")
}

// requestInfos parses the paths of requests as the API server does.
var requestInfos = apirequest.RequestInfoFactory{APIPrefixes: apisets.NewString("api", "apis"), GrouplessAPIPrefixes: apisets.NewString("api")}

// command returns the request as a shell command with kubectl and an admin's kubeconfig, or "" if the
// command is too long.
func (s *sentRequest) command() string {
	info, err := requestInfos.NewRequestInfo(&http.Request{Method: s.method, URL: &s.url})
	if err != nil || len(s.body) > maxRepeated {
		return ""
	}
	query := s.url.Query()
	words := []string{"--as", s.who.user}
	for _, group := range s.who.groups {
		words = append(words, "--as-group", group)
	}
	place := []string{}
	if info.Namespace != "" && info.Resource != "namespaces" {
		place = []string{"-n", info.Namespace}
	}
	if query.Get("dryRun") != "" {
		place = append(place, "--dry-run=server")
	}
	raw := []string{"--raw", s.url.RequestURI()}
	switch {
	case !info.IsResourceRequest || s.method == http.MethodGet:
		return shell([]string{"get"}, words, raw)
	case s.method == http.MethodPost && info.Subresource == "":
		return shell([]string{"create"}, words, place, []string{"--validate=ignore", "-f", "-"}) + input(s.manifest())
	case s.method == http.MethodPost:
		return shell([]string{"create"}, words, raw, []string{"-f", "-"}) + input(string(s.body))
	case s.method == http.MethodPut:
		return shell([]string{"replace"}, words, raw, []string{"-f", "-"}) + input(string(s.body))
	case s.method == http.MethodDelete && len(s.body) > 0:
		return shell([]string{"delete"}, words, raw, []string{"-f", "-"}) + input(string(s.body))
	case s.method == http.MethodDelete:
		return shell([]string{"delete"}, words, raw)
	case s.contentType == string(types.ApplyPatchType), s.contentType == string(types.ApplyYAMLPatchType):
		flags := []string{"--server-side", "--field-manager", query.Get("fieldManager"), "--validate=ignore", "-f", "-"}
		if query.Get("force") == "true" {
			flags = append([]string{"--force-conflicts"}, flags...)
		}
		return shell([]string{"apply"}, words, place, flags) + input(s.manifest())
	case s.method == http.MethodPatch:
		kind := map[string]string{string(types.JSONPatchType): "json", string(types.MergePatchType): "merge", string(types.StrategicMergePatchType): "strategic"}[s.contentType]
		target := []string{strings.TrimSuffix(info.Resource+"."+info.APIGroup, "."), info.Name}
		flags := []string{"--type", kind, "-p", string(s.body)}
		if info.Subresource != "" {
			flags = append([]string{"--subresource", info.Subresource}, flags...)
		}
		return shell([]string{"patch"}, target, words, place, flags)
	}
	return ""
}

// manifest returns the body as YAML.
func (s *sentRequest) manifest() string {
	content, err := yaml.JSONToYAML(s.body)
	if err != nil {
		return string(s.body)
	}
	return string(content)
}

// shell returns a kubectl command with shell quotes.
func shell(parts ...[]string) string {
	var line bytes.Buffer
	line.WriteString("kubectl")
	for _, words := range parts {
		for _, word := range words {
			if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@") != "" {
				word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
			}
			line.WriteString(" " + word)
		}
	}
	return line.String()
}

// input returns a here-document with the input of a command.
func input(text string) string {
	return fmt.Sprintf(" <<'EOF'\n%s\nEOF", strings.TrimRight(text, "\n"))
}

// commits returns the commands that write the files of an attack into a clone of the
// tenant's repository.
func (e *Scenario) commits(a Attack) string {
	lines := []string{"# in a clone of " + firstLine(e.Repository.URL) + ", branch " + firstLine(e.Repository.Branch)}
	publish := "git add . && git commit -m attack && git push"
	if !inGit(*e.Repository) {
		address := firstLine(e.Repository.Address())
		lines[0] = "# in the folder with the content of " + address
		publish = "flux push artifact " + address + " --path . --source attack --revision attack"
	}
	files := a.Files(e)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := path.Join(folder(a.Key()), name)
		if len(files[name]) > maxRepeated {
			lines = append(lines, fmt.Sprintf("# %s, of %d bytes", file, len(files[name])))
			continue
		}
		lines = append(lines, "mkdir -p "+path.Dir(file)+" && cat > "+file+input(files[name]))
	}
	return strings.Join(append(lines, publish), "\n")
}
