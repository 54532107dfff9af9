package podspec

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// fileOwners is the gate of the owners of files that the agent writes into volumes (KEP-5936).
const fileOwners = "AtomicWriteVolumeUserFields"

// gated has the gate without which a field of volumes and containers has no effect, by type and field.
var gated = map[string]string{
	"HTTPGetAction.protocol": "H2CContainerProbe",
	"GRPCAction.mode":        "GRPCContainerProbeTLS",

	"EmptyDirVolumeSource.mode":           "EmptyDirVolumeMode",
	"SecretVolumeSource.defaultUser":      fileOwners,
	"ConfigMapVolumeSource.defaultUser":   fileOwners,
	"DownwardAPIVolumeSource.defaultUser": fileOwners,
	"ProjectedVolumeSource.defaultUser":   fileOwners,

	"KeyToPath.user":                     fileOwners,
	"DownwardAPIVolumeFile.user":         fileOwners,
	"PodCertificateProjection.user":      fileOwners,
	"ServiceAccountTokenProjection.user": fileOwners,
	"ClusterTrustBundleProjection.user":  fileOwners,
}

// usual has the values of such fields that mean nothing else than an unset one.
var usual = map[string]string{
	"HTTPGetAction.protocol": string(v1.HTTPProtocolHTTP1),
	"GRPCAction.mode":        string(v1.GRPCProbeModePlaintext),
}

// WithoutEffect returns the set fields deep in the pod's volumes and containers that have no effect
// with these gates, as paths with the names of containers and volumes.
func WithoutEffect(pod *v1.Pod, enabled func(gate string) bool) []string {
	w := ignoredFields{enabled: enabled}
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
type ignoredFields struct {
	enabled func(gate string) bool
	found   []string
}

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
			full := v.Type().Name() + "." + name
			gate, is := gated[full]
			switch {
			case is && !v.Field(i).IsZero() && !w.enabled(gate) && !isUsual(full, v.Field(i)):
				w.found = append(w.found, inside)
			case f.IsExported():
				w.look(v.Field(i), inside)
			}
		}
	}
}

// isUsual reports whether the field, a pointer to a text, has its usual value.
func isUsual(full string, v reflect.Value) bool {
	return usual[full] != "" && v.Kind() == reflect.Pointer && v.Elem().String() == usual[full]
}
