package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byProxy is the control of a refusal without a more specific reason.
const byProxy = "proxy"

// noToken is the control that stops an owner whose service account does not exist.
const noToken = "no token"

// reviewPath is the path of SelfSubjectReviews, whose answer names the caller.
const reviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// reviewBody is the body of a SelfSubjectReview.
const reviewBody = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`

const namespacesPath = "/api/v1/namespaces"

// onProxy returns an attack that sends requests to the fleet's proxy with a token of the
// attacker. It is not installed if there is no proxy, and not proven if the proxy does not
// serve the attacker's ordinary requests.
func onProxy(requests func(context.Context, *proxyClient) ([]rawRequest, error)) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		if e.proxyEndpoint == nil {
			return e.nothingThere(ctx, notInstalled, "the fleet has no proxy for tenants")
		}
		if e.outside == nil {
			return notProven(errNoOutside.Error())
		}
		token, err := e.tokenOf(ctx, e.self(), authenticationv1.TokenRequestSpec{})
		if apierrors.IsNotFound(err) && e.Owner != nil {
			return e.nothingThere(ctx, noToken, "there is no account "+e.self().String()+" that could have a token")
		}
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		c, err := e.newProxyClient(e.self(), token)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		defer c.close()
		if err := c.works(ctx); err != nil {
			return notProven("the proxy does not work for the tenant: " + firstLine(err.Error()))
		}
		all, err := requests(ctx, c)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		return c.tryAll(ctx, all)
	}
}

// works is the positive control: it checks that the proxy serves the tenant's own requests, both requests
// that the proxy answers itself and requests that it forwards.
func (c *proxyClient) works(ctx context.Context) error {
	r, err := c.send(ctx, rawRequest{method: http.MethodPost, path: reviewPath, body: reviewBody, token: c.token})
	if err != nil {
		return err
	}
	if other, err := c.isSomebodyElse(ctx, r); err != nil || other || !r.ok() {
		return fmt.Errorf("it does not say who they are: %d %s: %w", r.code, r.message(), err)
	}
	if r, err = c.send(ctx, rawRequest{path: namespacesPath, token: c.token}); err == nil && !r.ok() {
		err = fmt.Errorf("it lists no namespaces: %d %s", r.code, r.message())
	}
	return err
}

// tryAll sends requests. The proxy must refuse each of them, or its answer must show nothing.
func (c *proxyClient) tryAll(ctx context.Context, all []rawRequest) Finding {
	var controls []string
	var message string
	for _, k := range all {
		r, err := c.send(ctx, k)
		f := k.judge(ctx, r, err)
		if f.Outcome != Stopped {
			return f
		}
		if !slices.Contains(controls, f.Control) {
			controls = append(controls, f.Control)
		}
		if message == "" {
			message = f.Message
		}
	}
	slices.Sort(controls)
	return stopped(strings.Join(controls, ", "), message)
}

// judge returns the outcome of a request.
func (k rawRequest) judge(ctx context.Context, r rawResponse, err error) Finding {
	switch {
	case err != nil && strings.Contains(err.Error(), "remote error: tls: "):
		return stopped(byProxy, firstLine(err.Error())) // the proxy refused the certificate
	case err != nil:
		return notProven("trying to " + k.what + ", there was no answer: " + firstLine(err.Error()))
	case r.ok() && k.breach == nil:
		return gotThrough("it could " + k.what)
	case r.ok():
		breach, err := k.breach(ctx, r)
		if err != nil {
			return notProven("trying to " + k.what + ", the answer cannot be judged: " + firstLine(err.Error()))
		}
		if breach {
			return gotThrough("it could " + k.what)
		}
		return stopped(byProxy, "answered with the caller's own objects")
	case r.code == http.StatusTooManyRequests || r.code >= http.StatusInternalServerError:
		return notProven(fmt.Sprintf("trying to %s, the answer was neither a success nor a known refusal: %d %s", k.what, r.code, r.message()))
	}
	if control, known := controlOf(r.message()); known {
		return stopped(control, r.message())
	}
	return stopped(byProxy, r.message())
}

// message returns the message of a refusal.
func (r rawResponse) message() string {
	var status metav1.Status
	if json.Unmarshal(r.body, &status) == nil && status.Message != "" {
		return firstLine(status.Message)
	}
	if text := firstLine(string(r.body)); text != "" {
		return text
	}
	return http.StatusText(r.code)
}

// isSomebodyElse reports whether the answer to a SelfSubjectReview names another user than the caller, or a
// group that does not include the caller.
func (c *proxyClient) isSomebodyElse(_ context.Context, r rawResponse) (bool, error) {
	if !r.ok() {
		return false, nil
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(r.body, &review); err != nil {
		return false, fmt.Errorf("the answer is no SelfSubjectReview: %w", err)
	}
	info := review.Status.UserInfo
	return info.Username != c.who.User() || slices.ContainsFunc(info.Groups, func(g string) bool { return !slices.Contains(c.who.Groups(), g) }), nil
}

// victimUIDs returns the UIDs of the victim's namespace and its objects. An answer that
// contains one of the objects contains its UID, in any media type.
func (c *proxyClient) victimUIDs(ctx context.Context) ([]types.UID, error) {
	v, in := c.scenario.Victim, metav1.ObjectMeta{Namespace: c.scenario.Victim.Namespace}
	ns, secret, configMap, account := &corev1.Namespace{}, &corev1.Secret{ObjectMeta: in}, &corev1.ConfigMap{ObjectMeta: in}, &corev1.ServiceAccount{ObjectMeta: in}
	ns.Name, secret.Name, configMap.Name, account.Name = v.Namespace, v.Secret, v.ConfigMap, v.Account
	var all []types.UID
	for _, o := range []client.Object{ns, secret, configMap, account} {
		if err := c.scenario.Admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return nil, fmt.Errorf("cannot read the target of the attack: %w", err)
		}
		all = append(all, o.GetUID())
	}
	return all, nil
}

// shows returns a function that reports whether an answer contains one of the objects.
func shows(uids []types.UID) func(context.Context, rawResponse) (bool, error) {
	return func(_ context.Context, r rawResponse) (bool, error) {
		return slices.ContainsFunc(uids, func(uid types.UID) bool { return bytes.Contains(r.body, []byte(uid)) }), nil
	}
}

// showsBeyondRights is like shows, but does not count objects that RBAC lets the caller read.
func (c *proxyClient) showsBeyondRights(right authorizationv1.ResourceAttributes, uids ...types.UID) func(context.Context, rawResponse) (bool, error) {
	return func(ctx context.Context, r rawResponse) (bool, error) {
		if found, _ := shows(uids)(ctx, r); !found {
			return false, nil
		}
		as, err := asAccount(c.scenario.config, c.who, c.scenario.customs)
		if err != nil {
			return false, err
		}
		asked := *c.scenario
		asked.As = as
		allowed, err := asked.isAllowed(ctx, right)
		return !allowed, err
	}
}

// showsForeign returns a function that reports whether a JSON list contains a foreign object:
// an object outside of the tenant's namespaces that the API server does not let the tenant
// read.
func (c *proxyClient) showsForeign(group, resource string) func(context.Context, rawResponse) (bool, error) {
	return func(ctx context.Context, r rawResponse) (bool, error) {
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(r.body, &list); err != nil {
			return false, fmt.Errorf("the answer is no list: %w", err)
		}
		asked := map[string]bool{}
		for _, item := range list.Items {
			question := authorizationv1.ResourceAttributes{Verb: "list", Group: group, Resource: resource, Namespace: item.Namespace}
			where := item.Namespace
			if where == "" {
				where, question.Verb, question.Name = item.Name, "get", item.Name
			}
			if resource == "namespaces" {
				question.Namespace = item.Name
			}
			// Attack I12 creates this Tenant, and only its finding counts the Tenant.
			own := slices.Contains(c.scenario.Tenant.Namespaces, where) || resource == "tenants" && (where == c.scenario.Tenant.Name || where == lookalikeName)
			if own || asked[where] {
				continue
			}
			asked[where] = true
			if where == c.scenario.Victim.Namespace {
				return true, nil
			}
			if allowed, err := c.scenario.isAllowed(ctx, question); err != nil || !allowed {
				return err == nil, err
			}
		}
		return false, nil
	}
}
