package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reviewed answers a SelfSubjectAccessReview about a read that the proxy answers
// for everybody, so that `kubectl auth can-i list namespaces` says what is so. It
// returns false for every other question, and for one that it cannot read.
func (p *Proxy) reviewed(w http.ResponseWriter, r *http.Request, c *call) (bool, error) {
	if r.Method != http.MethodPost || !c.plain || c.info.Path != accessReviewPath || r.Header.Get("Content-Encoding") != "" {
		return false, nil
	}
	content, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return true, refuse("size", apierrors.NewRequestEntityTooLargeError("the body is too large"))
	}
	if err != nil {
		return true, badRequest("body", "the body cannot be read")
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
	object, _, err := codecs.UniversalDeserializer().Decode(content, nil, nil)
	review, ok := object.(*authorizationv1.SelfSubjectAccessReview)
	if err != nil || !ok {
		return false, nil
	}
	// Whoever is not allowed to ask does not get an answer.
	who, err := p.identity(r.Context(), c)
	if err != nil {
		return true, err
	}
	if !p.answers(review.Spec.ResourceAttributes) && !p.joins(who, review.Spec.ResourceAttributes) {
		return false, nil
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: true,
		Reason:  "through the proxy of Tenure, which shows what is yours",
	}
	writeObject(w, r.Header.Get("Accept"), http.StatusCreated, authorizationv1.SchemeGroupVersion, review)
	return true, nil
}

// answers says whether the question is about a list or watch of a kind that has a
// rule. Such a kind is in no namespace, but kubectl always names one.
func (p *Proxy) answers(a *authorizationv1.ResourceAttributes) bool {
	if a == nil || (a.Verb != "list" && a.Verb != "watch") || a.Name != "" || a.Subresource != "" {
		return false
	}
	return p.rules[schema.GroupResource{Group: a.Group, Resource: a.Resource}] != nil
}
