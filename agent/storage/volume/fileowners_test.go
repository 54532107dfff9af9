package volume

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// With AtomicWriteVolumeUserFields a file belongs to its item's user, else to the volume's, else, if
// it is a credential, to the pod's; without the gate only a credential has an owner.
func TestFileOwners(t *testing.T) {
	requireRoot(t)
	user := func(n int64) *int64 { return ptr.To(n) }
	volumes := []v1.Volume{
		configMapVolume(v1.ConfigMapVolumeSource{LocalObjectReference: named("cfg"), DefaultUser: user(5)}),
		secretVolume(v1.SecretVolumeSource{SecretName: "key", DefaultUser: user(5)}),
		{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			DefaultUser: user(5), Items: []v1.DownwardAPIVolumeFile{
				{Path: "own", User: user(6), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}},
				{Path: "volume's", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}}},
		projectedVolume(
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
				Path: "token", User: user(6)}},
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "pod's"}},
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: named("cfg")}},
		),
	}
	for i, want := range []map[bool]string{
		{true: "a 5 -rw-r--r--, b 5 -rw-r--r--, c 5 -rw-r--r--", false: "a 0 -rw-r--r--, b 0 -rw-r--r--, c 0 -rw-r--r--"},
		{true: "k 5 -rw-r--r--", false: "k 0 -rw-r--r--"},
		{true: "own 6 -rw-r--r--, volume's 5 -rw-r--r--",
			false: "own 0 -rw-r--r--, volume's 0 -rw-r--r--"},
		{true: "a 0 -rw-r--r--, b 0 -rw-r--r--, c 0 -rw-r--r--, pod's 1000 -rw-------, token 6 -rw-------",
			false: "a 0 -rw-r--r--, b 0 -rw-r--r--, c 0 -rw-r--r--, pod's 1000 -rw-------, token 1000 -rw-------"},
	} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, %t", sourceKind(volumes[i].VolumeSource), on), func(t *testing.T) {
				v, _ := newVolumes(t, Config{Objects: newServer(), Enabled: func(gate string) bool {
					return on && gate == "AtomicWriteVolumeUserFields"
				}})
				pod := podWith(volumes[i])
				pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: user(1000)}
				dir := setUp(t, v, pod)
				names, err := filepath.Glob(filepath.Join(dir, "volumes/*/v/[a-z]*"))
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, name := range names {
					var s unix.Stat_t
					if err := unix.Stat(name, &s); err != nil {
						t.Fatal(err)
					}
					got = append(got, fmt.Sprintf("%s %d %v", filepath.Base(name), s.Uid, fs.FileMode(s.Mode).Perm()))
				}
				if all := strings.Join(got, ", "); all != want[on] {
					t.Errorf("got  %s\nwant %s", all, want[on])
				}
			})
		}
	}
}
