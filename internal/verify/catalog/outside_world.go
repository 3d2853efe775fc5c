package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Outside simulates the network outside of the cluster: hosts to which Flux sends notifications, and
// clients that call its webhooks.
type Outside interface {
	// Handle serves the paths of a host below a prefix, until Forget.
	Handle(host, prefix string, handler http.Handler)
	Forget(host, prefix string)
	// Client returns a client that sends requests as the cluster's processes do.
	Client() *http.Client
}

// errNoOutside is the error if the outside of the cluster cannot be simulated.
var errNoOutside = errors.New("no host outside of the cluster can be simulated here")

// outsidePatience is the maximum time to wait for Flux's reaction to a call or an event. look is the
// interval between two checks.
const (
	outsidePatience = time.Minute
	look            = 50 * time.Millisecond
)

// pollUntil calls try until it reports an answer or returns an error. It returns errNoAnswer after
// patience.
func pollUntil(ctx context.Context, patience time.Duration, try func(context.Context) (answered bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if answered, err := try(ctx); err != nil || answered {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w in %s", errNoAnswer, patience)
		case <-tick.C:
		}
	}
}

// errNoAnswer means that a wait ended without an answer.
var errNoAnswer = errors.New("nothing came of it")

// post sends JSON to a Service of the platform and returns the status code.
func (e *Scenario) post(ctx context.Context, service, path string, body []byte, header http.Header) (int, error) {
	if e.outside == nil {
		return 0, errNoOutside
	}
	address := fmt.Sprintf("http://%s.%s.svc.cluster.local%s", service, e.Platform, path)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("cannot call the Service %s: %w", service, err)
	}
	request.Header = header.Clone()
	request.Header.Set("Content-Type", "application/json")
	caller := e.outside.Client()
	defer caller.CloseIdleConnections()
	response, err := caller.Do(request)
	if err != nil {
		return 0, fmt.Errorf("cannot call the Service %s: %w", service, err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxLog))
	return response.StatusCode, nil
}

// maxLog is the maximum number of bytes that are read from a log or an answer.
const maxLog = 1 << 20

// controllerErrors returns the errors that a controller logged about an object in the last minute. Some
// refusals appear only in the log.
func (e *Scenario) controllerErrors(ctx context.Context, controller, namespace, name string) ([]string, error) {
	deployment := &appsv1.Deployment{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Namespace: e.Platform, Name: controller}, deployment); err != nil {
		return nil, fmt.Errorf("cannot find %s: %w", controller, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("cannot find the Pods of %s: %w", controller, err)
	}
	var pods corev1.PodList
	if err := e.Admin.List(ctx, &pods, client.InNamespace(e.Platform), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("cannot find the Pods of %s: %w", controller, err)
	}
	var said []string
	for _, pod := range pods.Items {
		options := &corev1.PodLogOptions{SinceSeconds: new(int64(60)), LimitBytes: new(int64(maxLog))}
		content, err := e.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot read the log of %s: %w", controller, err)
		}
		said = slices.Concat(said, errorsAbout(string(content), namespace, name))
	}
	return said, nil
}

// errorsAbout returns the errors about an object in a log of JSON lines, the format of Flux's controllers.
func errorsAbout(log, namespace, name string) []string {
	var said []string
	for line := range strings.Lines(log) {
		var entry struct {
			Name, Namespace, Error string
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Error != "" && entry.Name == name && entry.Namespace == namespace {
			said = append(said, entry.Error)
		}
	}
	return said
}
