package proxy

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// BenchmarkPassThrough measures a small GET over HTTP/2 with TLS that the proxy passes on,
// and the same GET without the proxy, by one client and by eight. The API server is a
// handler that answers at once, so the difference is the time of the proxy.
func BenchmarkPassThrough(b *testing.B) {
	answer := []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one","namespace":"a"},"data":{"key":"` + strings.Repeat("v", 400) + `"}}`)
	upstream := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	b.Cleanup(upstream.Close)
	s := fronting(b, upstream, Options{})
	token := strings.Join([]string{
		strings.Repeat("h", 90),
		base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"aud":["https://kubernetes.default.svc"],"exp":%d,"sub":"system:serviceaccount:a:owner","more":%q}`, time.Now().Add(time.Hour).Unix(), strings.Repeat("x", 400))),
		strings.Repeat("s", 342),
	}, ".")
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true,
	}}
	b.Cleanup(client.CloseIdleConnections)
	for _, way := range []struct{ name, host string }{{"through", s.server.URL}, {"direct", upstream.URL}} {
		get := func() error {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, way.host+"/api/v1/namespaces/a/configmaps/one", nil)
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer "+token)
			response, err := client.Do(r)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err == nil && (response.StatusCode != http.StatusOK || len(body) != len(answer)) {
				err = fmt.Errorf("%s: %s", response.Status, body)
			}
			return err
		}
		b.Run(way.name+"/one", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := get(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(way.name+"/eight", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(4) // per core; the benchmark uses two cores
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := get(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
