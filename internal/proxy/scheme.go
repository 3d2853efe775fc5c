package proxy

import (
	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// The kinds that the proxy reads or writes itself.
var (
	scheme = newScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{
		authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		corev1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme, v1beta1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // only if types conflict
		}
	}
	return s
}

// protobufCodec encodes and decodes reviews in protobuf, the fastest encoding.
var protobufCodec = func() runtime.Codec {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		panic("protobuf is not among the media types") // it is in every codec factory
	}
	versions := schema.GroupVersions{authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion}
	return codecs.CodecForVersions(info.Serializer, codecs.UniversalDeserializer(), versions, versions)
}()
