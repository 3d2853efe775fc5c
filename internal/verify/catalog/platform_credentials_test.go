package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A copy has the same private content, or the annotation by which flux-operator copies the Secret: an invented value
// shows nothing, as all have it.
func TestCopiesOf(t *testing.T) {
	t.Parallel()
	secret := func(namespace, name, password, from string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"password": []byte(password)}}
		if from != "" {
			s.Annotations = map[string]string{flux.CopyAnnotation: from}
		}
		return s
	}
	for _, tc := range []struct {
		reason   string
		password string
		want     []string
	}{
		{"the value is real", "hunter2", []string{"by-operator", "same"}},
		{"the value is invented", "invented", []string{"by-operator"}},
	} {
		e := newFakeEnv(interceptor.Funcs{}, secret("flux-system", "git", tc.password, ""), secret("team", "same", tc.password, ""),
			secret("team", "by-operator", "invented", "flux-system/git"), secret("team", "by-other", "invented", "flux-system/other"),
			secret("team", "of-team", "invented", "team/git"), secret("team", "own", "own", ""))
		found, err := e.copiesOf(t.Context(), []string{"git"})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range found {
			names = append(names, s.Name)
		}
		if diff := cmp.Diff(tc.want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
