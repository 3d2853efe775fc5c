package node

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// references reads the ConfigMaps and Secrets that a container's environment refers
// to.
type references interface {
	typedcorev1.ConfigMapsGetter
	typedcorev1.SecretsGetter
}

// expand replaces $(NAME) by the variable's value. As in Kubernetes, $$ is a dollar
// sign, and a reference to an unknown variable is not replaced.
func expand(s string, vars map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			out.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i:], ')')
			if end < 0 {
				out.WriteString("$(")
				i++
				continue
			}
			value, known := vars[s[i+2:i+end]]
			if !known {
				value = s[i : i+end+1]
			}
			out.WriteString(value)
			i += end
		default:
			out.WriteString(s[i : i+2])
			i++
		}
	}
	return out.String()
}

// resolveEnv returns a container's variables as a kubelet computes them, without the
// variables for Services. Its errors name the missing object or key.
func resolveEnv(ctx context.Context, refs references, pod *corev1.Pod, c *corev1.Container, allocatable corev1.ResourceList) (map[string]string, error) {
	vars := map[string]string{}
	for _, from := range c.EnvFrom {
		if err := addEnvFrom(ctx, refs, pod.Namespace, from, vars); err != nil {
			return nil, err
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			vars[e.Name] = expand(e.Value, vars)
			continue
		}
		value, found, err := resolveSource(ctx, refs, pod, c, e.ValueFrom, allocatable)
		if err != nil {
			return nil, fmt.Errorf("cannot resolve variable %s: %w", e.Name, err)
		}
		if found {
			vars[e.Name] = value
		}
	}
	return vars, nil
}

func addEnvFrom(ctx context.Context, refs references, namespace string, from corev1.EnvFromSource, vars map[string]string) error {
	switch {
	case from.ConfigMapRef != nil:
		cm, err := refs.ConfigMaps(namespace).Get(ctx, from.ConfigMapRef.Name, metav1.GetOptions{})
		if err != nil {
			return optional(from.ConfigMapRef.Optional, err)
		}
		for k, v := range cm.Data {
			vars[from.Prefix+k] = v
		}
	case from.SecretRef != nil:
		secret, err := refs.Secrets(namespace).Get(ctx, from.SecretRef.Name, metav1.GetOptions{})
		if err != nil {
			return optional(from.SecretRef.Optional, err)
		}
		for k, v := range secret.Data {
			vars[from.Prefix+k] = string(v)
		}
	}
	return nil
}

// optional returns nil for a missing object that is optional, and err otherwise.
func optional(may *bool, err error) error {
	if may != nil && *may && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func resolveSource(ctx context.Context, refs references, pod *corev1.Pod, c *corev1.Container, src *corev1.EnvVarSource, allocatable corev1.ResourceList) (value string, found bool, err error) {
	switch {
	case src.FieldRef != nil:
		value, err = fieldValue(pod, src.FieldRef.FieldPath)
		return value, err == nil, err
	case src.ResourceFieldRef != nil:
		value, err = resourceValue(c, src.ResourceFieldRef, allocatable)
		return value, err == nil, err
	case src.ConfigMapKeyRef != nil:
		ref := src.ConfigMapKeyRef
		cm, err := refs.ConfigMaps(pod.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return "", false, optional(ref.Optional, err)
		}
		value, found := cm.Data[ref.Key]
		return value, found, missingKey(found, ref.Optional, "ConfigMap", ref.Name, ref.Key)
	case src.SecretKeyRef != nil:
		ref := src.SecretKeyRef
		secret, err := refs.Secrets(pod.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return "", false, optional(ref.Optional, err)
		}
		value, found := secret.Data[ref.Key]
		return string(value), found, missingKey(found, ref.Optional, "Secret", ref.Name, ref.Key)
	}
	return "", false, nil
}

func missingKey(found bool, may *bool, kind, name, key string) error {
	if found || (may != nil && *may) {
		return nil
	}
	return fmt.Errorf("%s %s has no key %q", kind, name, key)
}

// fieldValue returns the value of a field reference of the downward API.
func fieldValue(pod *corev1.Pod, field string) (string, error) {
	if name, key, ok := strings.Cut(strings.TrimSuffix(field, "']"), "['"); ok {
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch field {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return pod.Status.HostIP, nil
	case "status.podIP", "status.podIPs":
		return pod.Status.PodIP, nil
	}
	return "", fmt.Errorf("field %q is not supported", field)
}

// resourceValue returns the value of a resource field reference: the quantity in
// units of the divisor, rounded up. The default of a limit is the node's allocatable
// quantity.
func resourceValue(c *corev1.Container, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	which, name, ok := strings.Cut(ref.Resource, ".")
	if !ok || (which != "limits" && which != "requests") {
		return "", fmt.Errorf("resource %q is not supported", ref.Resource)
	}
	list, res := c.Resources.Requests, corev1.ResourceName(name)
	quantity := list[res]
	if which == "limits" {
		limit, set := c.Resources.Limits[res]
		if !set {
			limit = allocatable[res]
		}
		quantity = limit
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if res == corev1.ResourceCPU {
		return ceilRatio(quantity.MilliValue(), divisor.MilliValue()), nil
	}
	return ceilRatio(quantity.Value(), divisor.Value()), nil
}

func ceilRatio(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}

// processEnv returns the whole environment of a process: the Pod's variables that
// the program allows, then the node's, then the fixed variables; later ones override
// earlier ones. It also returns the names of the omitted variables of the Pod.
func processEnv(p Program, pod map[string]string, node []string, fixed map[string]string) (env, dropped []string) {
	merged := map[string]string{}
	for name, value := range pod {
		if !slices.Contains(p.Env, name) || strings.ContainsRune(value, 0) {
			dropped = append(dropped, name)
			continue
		}
		merged[name] = value
	}
	for _, kv := range node {
		name, value, _ := strings.Cut(kv, "=")
		merged[name] = value
	}
	for name, value := range fixed {
		merged[name] = value
	}
	for name, value := range merged {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	slices.Sort(dropped)
	return env, dropped
}
