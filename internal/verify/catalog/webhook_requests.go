package catalog

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// asked reports whether the API server may ask the webhook, or the policy, about one of the requests that an attack sent and
// the API server accepted. It returns true if it does not know all labels of an object, or an expression, and if the attack sent no such
// request, as an attack that Flux carries out.
func (w webhookDoubt) asked(a Attack, e *Scenario, sent []sentRequest) bool {
	if a.Via != API || a.Deep {
		return true
	}
	writes := slices.DeleteFunc(slices.Clone(sent), func(s sentRequest) bool {
		return s.reads() || !s.accepted() || s.isAuthorizationReview()
	})
	return len(writes) == 0 || slices.ContainsFunc(writes, func(s sentRequest) bool {
		sets, known := s.labels()
		selected := w.objects == nil || !known || slices.ContainsFunc(sets, func(set labels.Set) bool { return selects(w.objects, set) })
		return selected && w.selectsNamespaceOf(s, e) && !slices.ContainsFunc(w.conditions, func(expression string) bool { return s.value(expression) == isFalse })
	})
}

// selectsNamespaceOf reports whether the selectors may select the namespace of a request. They apply to no other request.
func (w webhookDoubt) selectsNamespaceOf(s sentRequest, e *Scenario) bool {
	info, err := requestInfos.NewRequestInfo(&http.Request{Method: s.method, URL: &s.url})
	if err != nil || info.Resource == "namespaces" {
		return true
	}
	i := slices.IndexFunc(e.namespaces, func(ns corev1.Namespace) bool { return ns.Name == info.Namespace })
	return i < 0 || !slices.ContainsFunc(w.namespaces, func(s *metav1.LabelSelector) bool { return s != nil && !selects(s, e.namespaces[i].Labels) })
}

// reads reports whether a request only reads. The API server asks webhooks about connections, such as those to Pods, whose
// paths are those of subresources.
func (s *sentRequest) reads() bool {
	info, err := requestInfos.NewRequestInfo(&http.Request{Method: s.method, URL: &s.url})
	return s.method == http.MethodGet && err == nil && info.Subresource == ""
}

// keepAnswer reads the object in the answer to an accepted request that writes, and leaves the answer as it was.
func (s *sentRequest) keepAnswer(answer *http.Response) {
	if s.method == http.MethodGet || !s.accepted() || answer.Body == nil {
		return
	}
	// A longer object has no known labels.
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxRepeated+1))
	rest := io.MultiReader(bytes.NewReader(content), answer.Body)
	answer.Body = struct {
		io.Reader
		io.Closer
	}{rest, answer.Body}
	if err == nil && len(content) <= maxRepeated {
		s.answer = content
	}
}

// labels returns the labels of the object that a request creates or changes, as the tenant sent them and as the API server
// has them, and whether they are known. They are not known of an object that is deleted, replaced or written through a
// subresource.
func (s *sentRequest) labels() ([]labels.Set, bool) {
	info, err := requestInfos.NewRequestInfo(&http.Request{Method: s.method, URL: &s.url})
	if err != nil || !info.IsResourceRequest || info.Subresource != "" {
		return nil, false
	}
	// A patch that does not name labels leaves them.
	patches := s.method == http.MethodPatch && s.contentType == string(types.MergePatchType) && !bytes.Contains(s.body, []byte("labels"))
	var sent, answered metav1.PartialObjectMetadata
	switch {
	case s.method != http.MethodPost && !patches, len(s.body) > maxRepeated, json.Unmarshal(s.answer, &answered) != nil:
		return nil, false
	case patches:
		return []labels.Set{answered.Labels}, true
	}
	err = json.Unmarshal(s.body, &sent)
	return []labels.Set{sent.Labels, answered.Labels}, err == nil
}

// truth is the value of an expression, as far as it is known.
type truth int

const (
	isUnknown truth = iota
	isFalse
	isTrue
)

func truthOf(is bool) truth {
	if is {
		return isTrue
	}
	return isFalse
}

var (
	// quoted matches a string of CEL without escapes, and atom a comparison of the namespace, the resource or the user of a
	// request with strings, which are placeholders.
	quoted = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	atom   = regexp.MustCompile(`^request\.(namespace|resource\.resource|userInfo\.username) ?(==|!=|in) ?(\[[\d#, ]*\]|#\d+)$`)
	group  = regexp.MustCompile(`^#(\d+) in request\.userInfo\.groups$`)
	number = regexp.MustCompile(`\d+`)
	spaces = regexp.MustCompile(`\s+`)
)

// value returns the value of a CEL expression for a request: of && and || over comparisons of the request's namespace,
// resource and user with strings, and their negations. The value of any other part is unknown.
func (s *sentRequest) value(expression string) truth {
	if strings.ContainsAny(expression, `\#?`) || strings.Contains(expression, "//") || strings.Contains(expression, `'''`) || strings.Contains(expression, `"""`) {
		return isUnknown
	}
	var texts []string
	expression = quoted.ReplaceAllStringFunc(expression, func(text string) string {
		texts = append(texts, text[1:len(text)-1])
		return "#" + string(rune('0'+min(len(texts)-1, 10)))
	})
	// The placeholders have one digit. An operator inside of brackets would need a parser.
	if len(texts) > 10 || strings.ContainsAny(expression, `'"`) || operatorInBrackets(expression) {
		return isUnknown
	}
	expression = strings.TrimSpace(spaces.ReplaceAllString(expression, " "))
	result := isFalse
	for alternative := range strings.SplitSeq(expression, "||") {
		all := isTrue
		for part := range strings.SplitSeq(alternative, "&&") {
			switch v := s.comparison(strings.TrimSpace(part), texts); {
			case v == isFalse:
				all = isFalse
			case v == isUnknown && all == isTrue:
				all = isUnknown
			}
		}
		switch {
		case all == isTrue:
			result = isTrue
		case all == isUnknown && result == isFalse:
			result = isUnknown
		}
	}
	return result
}

// operatorInBrackets reports whether an expression has && or || inside of brackets.
func operatorInBrackets(expression string) bool {
	depth := 0
	for _, r := range expression {
		switch {
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth--
		case depth != 0 && strings.ContainsRune("&|", r):
			return true
		}
	}
	return false
}

// comparison returns the value of one comparison, with or without brackets and a negation. texts are the strings of its
// placeholders.
func (s *sentRequest) comparison(part string, texts []string) truth {
	if inner, negated := strings.CutPrefix(part, "!"); negated {
		if !strings.HasPrefix(strings.TrimSpace(inner), "(") {
			return isUnknown
		}
		switch s.comparison(strings.TrimSpace(inner), texts) {
		case isFalse:
			return isTrue
		case isTrue:
			return isFalse
		}
		return isUnknown
	}
	if strings.HasPrefix(part, "(") && strings.HasSuffix(part, ")") {
		return s.comparison(strings.TrimSpace(part[1:len(part)-1]), texts)
	}
	at := func(placeholder string) string { return texts[placeholder[0]-'0'] }
	if m := group.FindStringSubmatch(part); m != nil {
		named := at(m[1])
		// The API server adds groups of its own, which begin so.
		if !slices.Contains(s.who.groups, named) && strings.HasPrefix(named, "system:") && !strings.HasPrefix(named, "system:node") && named != "system:masters" {
			return isUnknown
		}
		return truthOf(slices.Contains(s.who.groups, named))
	}
	m := atom.FindStringSubmatch(part)
	info, err := requestInfos.NewRequestInfo(&http.Request{Method: s.method, URL: &s.url})
	if m == nil || err != nil || (m[2] == "in") != strings.HasPrefix(m[3], "[") {
		return isUnknown
	}
	has := map[string]string{"namespace": info.Namespace, "resource.resource": info.Resource, "userInfo.username": s.who.user}[m[1]]
	if m[1] == "namespace" && info.Resource == "namespaces" {
		return isUnknown
	}
	is := slices.ContainsFunc(number.FindAllString(m[3], -1), func(placeholder string) bool { return at(placeholder) == has })
	return truthOf(is != (m[2] == "!="))
}
