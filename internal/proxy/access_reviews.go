package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

const rulesReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

const (
	// maxAccessReview is the maximum size of a review that the proxy answers, in bytes. The API
	// server answers larger ones: a decoded review takes up to a hundred times its size in JSON.
	maxAccessReview = 16 << 10
	// decodedRules is the memory of a decoded and changed answer to a rules review, as a multiple
	// of its size.
	decodedRules = 4
)

// withAccessReviews answers a SelfSubjectAccessReview about a list or watch that the proxy
// answers.
func (p *Proxy) withAccessReviews(next http.Handler) http.Handler {
	return answerOr(next, "reviewed", p.answerAccessReview)
}

// withRulesReviews answers a SelfSubjectRulesReview.
func (p *Proxy) withRulesReviews(next http.Handler) http.Handler {
	return answerOr(next, "reviewed", p.answerRulesReview)
}

// answerAccessReview answers a SelfSubjectAccessReview about a list or watch that the proxy answers for
// all users, so that `kubectl auth can-i list namespaces` prints yes. It returns false for
// all other reviews and for a review that it cannot parse.
func (p *Proxy) answerAccessReview(w http.ResponseWriter, r *http.Request, c *requestCall) (bool, error) {
	if r.Method != http.MethodPost || !c.unambiguous || c.info.Path != accessReviewPath || r.Header.Get("Content-Encoding") != "" {
		return false, nil
	}
	content, err := io.ReadAll(c.memory.Reader(io.LimitReader(r.Body, maxAccessReview+1)))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return true, refuse("size", apierrors.NewRequestEntityTooLargeError("the body is too large"))
	}
	var full *budget.FullError
	if errors.As(err, &full) {
		return true, err
	}
	if err != nil {
		return true, badRequest("body", "the body cannot be read")
	}
	r.Body = readCloser{io.MultiReader(bytes.NewReader(content), r.Body), r.Body}
	if len(content) > maxAccessReview {
		return false, nil
	}
	review := decodeAccessReview(r.Header.Get("Content-Type"), content)
	if review == nil {
		return false, nil
	}
	// A user who may not send the review gets no answer.
	who, err := p.identity(r.Context(), c)
	if err != nil {
		return true, err
	}
	allowed := p.answers(review.Spec.ResourceAttributes) || p.joins(who, review.Spec.ResourceAttributes)
	if !allowed {
		if allowed, err = p.showsAny(r.Context(), who, review.Spec.ResourceAttributes, c.memory); err != nil {
			return true, err
		}
	}
	if !allowed {
		return false, nil
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: true,
		Reason:  "the proxy of Tenure answers with the objects that you may see",
	}
	writeObject(w, r.Header.Get("Accept"), http.StatusCreated, authorizationv1.SchemeGroupVersion, review)
	return true, nil
}

// decodeAccessReview returns a review in JSON or in protobuf, and nil for all other content. It does
// not decode YAML, in which aliases can repeat a text any number of times.
func decodeAccessReview(contentType string, content []byte) *authorizationv1.SelfSubjectAccessReview {
	name, _, err := mime.ParseMediaType(cmp.Or(contentType, runtime.ContentTypeJSON))
	if err != nil || name != runtime.ContentTypeJSON && name != runtime.ContentTypeProtobuf {
		return nil
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), name)
	if !ok {
		return nil
	}
	object, _, err := info.Serializer.Decode(content, nil, nil)
	review, ok := object.(*authorizationv1.SelfSubjectAccessReview)
	if err != nil || !ok {
		return nil
	}
	return review
}

// readCloser is the body of a request of which the proxy has read the beginning.
type readCloser struct {
	io.Reader
	io.Closer
}

// answers reports whether a question is about a list or watch of a kind that has a rule.
// Such a kind is cluster-scoped, but kubectl always sends a namespace.
func (p *Proxy) answers(a *authorizationv1.ResourceAttributes) bool {
	if a == nil || (a.Verb != "list" && a.Verb != "watch") || a.Name != "" || a.Subresource != "" {
		return false
	}
	return p.rules[schema.GroupResource{Group: a.Group, Resource: a.Resource}] != nil
}

// showsAny reports whether a question is about a read of a cluster-scoped kind of which the
// proxy shows objects to the user. For a get with a name, it reports whether the proxy
// shows that object.
func (p *Proxy) showsAny(ctx context.Context, who user.Info, a *authorizationv1.ResourceAttributes, memory *budget.Reservation) (bool, error) {
	if a == nil || a.Subresource != "" || p.cache.ready() != nil {
		return false, nil
	}
	kind := schema.GroupResource{Group: a.Group, Resource: a.Resource}
	given := p.cache.shares(who, kind, a.Verb)
	if given.empty() {
		return false, nil
	}
	served, ok := p.kinds.inCluster(a.Group, a.Resource)
	if !ok || a.Verb != "get" || a.Name == "" {
		return ok, nil
	}
	object, err := p.metadata(ctx, pathOf(served, a.Name), memory)
	if err != nil || object == nil {
		return false, err
	}
	return given.matches(object.Labels), nil
}

// answerRulesReview answers a SelfSubjectRulesReview with the API server's answer and the rules
// for the requests that the proxy answers, so that `kubectl auth can-i --list` prints them.
// It returns false for all other requests.
func (p *Proxy) answerRulesReview(w http.ResponseWriter, r *http.Request, c *requestCall) (bool, error) {
	if r.Method != http.MethodPost || !c.unambiguous || c.info.Path != rulesReviewPath {
		return false, nil
	}
	// A user who may not send the review gets no answer.
	who, err := p.identity(r.Context(), c)
	if err != nil {
		return true, err
	}
	if err := p.cache.ready(); err != nil {
		return true, err
	}
	accept := r.Header.Get("Accept")
	r.Header.Set("Accept", runtime.ContentTypeJSON)
	r.Header.Del("Accept-Encoding")
	answer := &bufferedResponse{header: http.Header{}, memory: c.memory}
	p.reverseProxy.ServeHTTP(answer, r)
	if answer.full != nil {
		return true, answer.full
	}
	object, _, err := codecs.UniversalDeserializer().Decode(answer.body.Bytes(), nil, nil)
	review, ok := object.(*authorizationv1.SelfSubjectRulesReview)
	if err != nil || !ok {
		// The API server's other answers, such as a refusal, are JSON.
		copyHeader(w.Header(), answer.header)
		w.WriteHeader(answer.code)
		_, _ = w.Write(answer.body.Bytes())
		return true, nil
	}
	review.Status.ResourceRules = append(review.Status.ResourceRules, p.shown(who)...)
	writeObject(w, accept, answer.code, authorizationv1.SchemeGroupVersion, review)
	return true, nil
}

// shown returns the rules for the cluster-wide requests that the proxy answers for a user.
func (p *Proxy) shown(who user.Info) []authorizationv1.ResourceRule {
	var rules []authorizationv1.ResourceRule
	for kind := range p.rules {
		rules = append(rules, authorizationv1.ResourceRule{Verbs: []string{"list", "watch"}, APIGroups: []string{kind.Group}, Resources: []string{kind.Resource}})
	}
	for kind, verbs := range p.cache.sharedKinds(who) {
		if _, ok := p.kinds.inCluster(kind.Group, kind.Resource); ok {
			rules = append(rules, authorizationv1.ResourceRule{Verbs: verbs, APIGroups: []string{kind.Group}, Resources: []string{kind.Resource}})
		}
	}
	slices.SortFunc(rules, func(a, b authorizationv1.ResourceRule) int {
		return cmp.Or(strings.Compare(a.APIGroups[0], b.APIGroups[0]), strings.Compare(a.Resources[0], b.Resources[0]))
	})
	return rules
}

// bufferedResponse buffers an answer of the API server that the proxy changes before the
// client gets it. The size of an answer about rules depends on the user's rules.
type bufferedResponse struct {
	header http.Header
	code   int
	body   bytes.Buffer
	memory *budget.Reservation
	// full is the error if the limits of memory do not allow the whole answer.
	full error
}

// Header implements http.ResponseWriter.
func (h *bufferedResponse) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter.
func (h *bufferedResponse) WriteHeader(code int) {
	if code >= http.StatusOK {
		h.code = code
	}
}

// Write implements http.ResponseWriter.
func (h *bufferedResponse) Write(b []byte) (int, error) {
	if h.code == 0 {
		h.code = http.StatusOK
	}
	if h.full = cmp.Or(h.full, h.memory.Take(decodedRules*int64(len(b)))); h.full != nil {
		return len(b), nil // report success, so that the writer continues to the end
	}
	return h.body.Write(b)
}

// joins reports whether a question is about a list or watch in all namespaces that the
// proxy answers with the objects of some namespaces.
func (p *Proxy) joins(who user.Info, a *authorizationv1.ResourceAttributes) bool {
	if a == nil || (a.Verb != "list" && a.Verb != "watch") || a.Name != "" || a.Subresource != "" || a.Namespace != "" ||
		p.rules[schema.GroupResource{Group: a.Group, Resource: a.Resource}] != nil {
		return false
	}
	return len(p.cache.visible(who, attributes{verb: a.Verb, group: a.Group, resource: a.Resource})) > 0 && p.kinds.namespaced(a.Group, a.Resource)
}
