package cluster_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// notMade returns honoured fields that no variant sets, and the reasons.
func notMade() map[string]string {
	out := map[string]string{
		"PodSpec.nodeName": "every pod has it",
		"PodSpec.priority": "the API server sets it by priorityClassName",
		"PodSpec.overhead": "the API server sets it by runtimeClassName",
	}
	for why, fields := range map[string][]string{
		"TestNFS runs both agents": {"NFSVolumeSource", "server", "path", "readOnly"},
		"TestClaims and TestNFS run both agents": {"PersistentVolumeClaimVolumeSource",
			"claimName", "readOnly"},
		"TestResizes runs both agents":      {"ContainerResizePolicy", "resourceName", "restartPolicy"},
		"TestBlockVolumes runs both agents": {"VolumeDevice", "name", "devicePath"},
		"TestPodCertificates runs both agents": {"PodCertificateProjection", "signerName",
			"keyType", "credentialBundlePath", "keyPath", "certificateChainPath"},
		"TestClaimScenarios runs both agents": {"PodResourceClaim", "name", "resourceClaimName",
			"resourceClaimTemplateName"},
		"TestClaimScenarios runs both agents, too": {"ResourceClaim", "name", "request"},
		"it takes a target": {"ISCSIVolumeSource", "targetPortal", "iqn", "lun", "iscsiInterface", "fsType",
			"readOnly", "portals", "chapAuthDiscovery", "chapAuthSession", "initiatorName"},
		"it takes a fabric": {"FCVolumeSource", "targetWWNs", "lun", "fsType", "readOnly", "wwids"},
		"TestCSIStories runs both agents": {"CSIVolumeSource", "driver", "readOnly", "fsType",
			"volumeAttributes"},
		"the API server has its gate off": {"EmptyDirVolumeSource", "mode"},
		"that of bindMountOptions, too":   {"VolumeMount", "bindMountOptions"},
		"it is for the signer": {"PodCertificateProjection", "maxExpirationSeconds",
			"userAnnotations"},
	} {
		for _, field := range fields[1:] {
			out[fields[0]+"."+field] = why
		}
	}
	for _, field := range []string{"ConfigMapVolumeSource.defaultUser", "SecretVolumeSource.defaultUser",
		"DownwardAPIVolumeSource.defaultUser", "ProjectedVolumeSource.defaultUser", "KeyToPath.user",
		"DownwardAPIVolumeFile.user", "ServiceAccountTokenProjection.user",
		"ClusterTrustBundleProjection.user", "PodCertificateProjection.user"} {
		out[field] = "the API server has the gate of files' owners off"
	}
	return out
}

// TestVariantsCoverPods: every field that docs/pod-fields.md calls honoured has a variant, so that
// it is compared with the kubelet.
func TestVariantsCoverPods(t *testing.T) {
	made, exempt := map[string]bool{}, notMade()
	ask := asking{80, 81, 82}
	for _, one := range slices.Concat(simVariants(ask), ask.gatedVariants(), insideVariants()) {
		pod := ordinaryPod("one")
		one.set(pod)
		fieldsSet(reflect.ValueOf(pod.Spec), made)
	}
	for _, field := range honoured(t) {
		if made[field] == (exempt[field] != "") {
			t.Errorf("%s: a variant sets it: %v; why none does: %q", field, made[field], exempt[field])
		}
		delete(exempt, field)
	}
	for field := range exempt {
		t.Errorf("%s is no field that is honoured", field)
	}
}

// honoured returns the fields that the page calls honoured, as Type.field.
func honoured(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/pod-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile("^## .*`([A-Za-z]+)`$")
	row := regexp.MustCompile("^\\| `([A-Za-z]+)` \\| honoured \\|")
	of := ""
	for line := range strings.Lines(string(text)) {
		if m := heading.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			of = m[1]
		} else if m := row.FindStringSubmatch(line); m != nil {
			out = append(out, of+"."+m[1])
		}
	}
	if len(out) == 0 {
		t.Fatal("the page has no field that is honoured")
	}
	return out
}

// fieldsSet collects the API types' fields that are set in a value, as Type.field.
func fieldsSet(v reflect.Value, into map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fieldsSet(v.Elem(), into)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fieldsSet(v.Index(i), into)
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "k8s.io/api/core/v1" {
			fieldsOf(v, v.Type().Name(), into)
		}
	}
}

// fieldsOf collects the fields of a struct that is, or is part of, the type of that name.
func fieldsOf(v reflect.Value, of string, into map[string]bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || v.Field(i).IsZero():
		case name == "" && f.Type != reflect.TypeFor[v1.EphemeralContainerCommon]():
			fieldsOf(v.Field(i), of, into)
		default:
			into[of+"."+name] = true
			fieldsSet(v.Field(i), into)
		}
	}
}
