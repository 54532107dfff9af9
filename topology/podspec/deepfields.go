package podspec

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ignored holds the fields of volumes and containers that have no effect yet, by type and field.
var ignored = map[string]bool{
	"VolumeMount.bindMountOptions": true,
	"HTTPGetAction.protocol":       true,
	"GRPCAction.mode":              true,

	"EmptyDirVolumeSource.mode":           true,
	"SecretVolumeSource.defaultUser":      true,
	"ConfigMapVolumeSource.defaultUser":   true,
	"DownwardAPIVolumeSource.defaultUser": true,
	"ProjectedVolumeSource.defaultUser":   true,

	"KeyToPath.user":                     true,
	"DownwardAPIVolumeFile.user":         true,
	"PodCertificateProjection.user":      true,
	"ServiceAccountTokenProjection.user": true,
	"ClusterTrustBundleProjection.user":  true,
}

// WithoutEffect returns the set fields deep in the pod's volumes and containers that have no effect
// yet, as paths with the names of containers and volumes.
func WithoutEffect(pod *v1.Pod) []string {
	var w ignoredFields
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		w.look(reflect.ValueOf(v.VolumeSource), fmt.Sprintf("spec.volumes[%s]", v.Name))
	}
	for c, kind := range Containers(pod) {
		w.look(reflect.ValueOf(*c), fmt.Sprintf("spec.%s[%s]", listOf(kind), c.Name))
	}
	return w.found
}

// listOf returns the field of the pod's spec that lists containers of a kind.
func listOf(kind Kind) string {
	switch kind {
	case Regular:
		return "containers"
	case Ephemeral:
		return "ephemeralContainers"
	default:
		return "initContainers"
	}
}

// ignoredFields collects set fields without effect.
type ignoredFields struct{ found []string }

func (w *ignoredFields) look(v reflect.Value, at string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			w.look(v.Elem(), at)
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.look(v.Index(i), fmt.Sprintf("%s[%d]", at, i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			inside := at
			if name != "" {
				inside += "." + name
			}
			switch {
			case ignored[v.Type().Name()+"."+name] && !v.Field(i).IsZero():
				w.found = append(w.found, inside)
			case f.IsExported():
				w.look(v.Field(i), inside)
			}
		}
	}
}
