package volume

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Only ordinary volumes are made beside the sandbox, and only the first time.
func TestBeside(t *testing.T) {
	projected := func(s v1.VolumeProjection) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}, s}}}
	}
	config := func(name string) *v1.ConfigMapProjection {
		return &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: name}}
	}
	for name, c := range map[string]struct {
		source v1.VolumeSource
		want   bool
	}{
		"the token and the CA":   {projected(v1.VolumeProjection{ConfigMap: config(rootCA)}), true},
		"what the pod says":      {projected(v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{}}), true},
		"another ConfigMap":      {projected(v1.VolumeProjection{ConfigMap: config("settings")}), false},
		"a Secret":               {projected(v1.VolumeProjection{Secret: &v1.SecretProjection{}}), false},
		"an empty directory":     {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, true},
		"no source, as empty":    {v1.VolumeSource{}, true},
		"a directory of pages":   {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}}, false},
		"what the pod has":       {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}, true},
		"a path of the node":     {v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}, false},
		"a claim":                {v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, false},
		"an image":               {v1.VolumeSource{Image: &v1.ImageVolumeSource{}}, false},
		"a volume of a type":     {v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}, false},
		"an ephemeral claim":     {v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, false},
		"a share of the network": {v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}, false},
	} {
		pod := podWith(v1.Volume{Name: "v", VolumeSource: c.source})
		v, err := New(alone(Config{Root: t.TempDir()}))
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Beside(pod); got != c.want {
			t.Errorf("%s beside the sandbox: %t", name, got)
		}
		if v.begin(pod); v.Beside(pod) {
			t.Errorf("%s is made beside the sandbox once more", name)
		}
	}
}
